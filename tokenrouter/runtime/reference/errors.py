"""What the reference raises.

TokenRouterError
└── BeyondReference     the plan uses a part of the language that the reference does not speak
"""

from __future__ import annotations

from tokenrouter.errors import TokenRouterError


class BeyondReference(TokenRouterError):  # noqa: N818 - reads as what it says
    """The plan uses a part of the language that the reference does not speak."""
