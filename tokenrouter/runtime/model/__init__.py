"""Models: decoder, loaders and paged attention."""

from __future__ import annotations

from tokenrouter.runtime.model.batch import ExtendBatch, ExtendOutput, Extension
from tokenrouter.runtime.model.kv import KVCache
from tokenrouter.runtime.model.language_model import LanguageModel
from tokenrouter.runtime.model.load import load_model

__all__ = ["ExtendBatch", "ExtendOutput", "Extension", "KVCache", "LanguageModel", "load_model"]
