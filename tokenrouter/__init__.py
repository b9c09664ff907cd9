"""Token-level LLM routing: a compiler for `.route` policies and a runtime that serves their plans.

`compile` and `Engine` are looked up when they are first used, so that importing the package costs nothing and
compiling never needs torch.
"""

from typing import TYPE_CHECKING

from tokenrouter.version import __version__

if TYPE_CHECKING:
    from tokenrouter.compiler.compile import compile_policy as compile
    from tokenrouter.runtime.engine import Engine

__all__ = ["Engine", "__version__", "compile"]


def __getattr__(name: str) -> object:
    """Return `compile` or `Engine`, loaded now."""
    if name == "compile":
        from tokenrouter.compiler.compile import compile_policy  # noqa: PLC0415

        return compile_policy
    if name == "Engine":
        from tokenrouter.runtime.engine import Engine  # noqa: PLC0415

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
