"""What the runtime raises where the world is wrong.

TokenRouterError
├── RequestRefused      this request cannot be served, now or ever
├── SubserverLost       a subserver ended and could not be started again
└── StartFailed         the runtime could not be brought up
"""

from __future__ import annotations

from typing import Literal

from tokenrouter.errors import TokenRouterError

Kind = Literal["invalid", "too_long", "overloaded", "closing"]


class RequestRefused(TokenRouterError):  # noqa: N818
    """A request is refused, or cut off where the runtime closes; `kind` says whether it ever could be served (`overloaded`, `closing`)."""

    def __init__(self, message: str, kind: Kind = "invalid") -> None:
        super().__init__(message)
        self.kind: Kind = kind


class SubserverLost(TokenRouterError):  # noqa: N818
    """A subserver ended and its restarts failed."""


class StartFailed(TokenRouterError):  # noqa: N818
    """A subserver did not come up; the message is its own."""
