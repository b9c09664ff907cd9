"""Token-level LLM routing: a compiler for `.route` policies and a runtime that serves their plans.

`compile`, `Engine` and `Sampling` are looked up when they are first used, so that importing the package costs nothing and
compiling never needs torch.
"""

from typing import TYPE_CHECKING

from tokenrouter.version import __version__

if TYPE_CHECKING:
    from tokenrouter.compiler.compile import compile_policy as compile
    from tokenrouter.runtime.engine import Engine
    from tokenrouter.runtime.messages import Sampling

__all__ = ["Engine", "Sampling", "__version__", "compile"]


def __getattr__(name: str) -> object:
    """Return one of the names above, loaded now."""
    if name == "compile":
        from tokenrouter.compiler.compile import compile_policy  # noqa: PLC0415

        return compile_policy
    if name == "Engine":
        from tokenrouter.runtime.engine import Engine  # noqa: PLC0415

        return Engine
    if name == "Sampling":
        from tokenrouter.runtime.messages import Sampling  # noqa: PLC0415

        return Sampling
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what is here by now, and the names that are looked up later."""
    return sorted({*globals(), *__all__})
