"""Whether a plan's Python heads may run. It needs no torch: the front end asks too, and must start fast.

TokenRouterError
└── PythonNotAllowed
"""

from __future__ import annotations

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import Plan


class PythonNotAllowed(TokenRouterError):  # noqa: N818 - reads as what it says
    """A plan's head is Python code, and nobody has allowed that it runs."""


def refuse_python(plan: Plan, *, allowed: bool) -> None:
    """Raise PythonNotAllowed where a plan has a Python head that is not allowed."""
    for head in plan.heads:
        if head.kind == "python" and not allowed:
            raise PythonNotAllowed(
                f"head `{head.name}` runs Python code, `{head.file}`; where you trust it, say --allow-python "
                "(in Python, `allow_python=True`)"
            )
