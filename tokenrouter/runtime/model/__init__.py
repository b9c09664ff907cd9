"""Models: decoder, loaders and paged attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenrouter.runtime.model.batch import ExtendBatch, ExtendOutput, Extension
from tokenrouter.runtime.model.kv import KVCache
from tokenrouter.runtime.model.language_model import LanguageModel

if TYPE_CHECKING:
    from tokenrouter.runtime.model.load import load_model

__all__ = ["ExtendBatch", "ExtendOutput", "Extension", "KVCache", "LanguageModel", "load_model"]


def __getattr__(name: str) -> object:
    """Return the loader, read now: beside torch it needs what files of weights need, and a model of its own does not."""
    if name == "load_model":
        from tokenrouter.runtime.model.load import load_model  # noqa: PLC0415

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
