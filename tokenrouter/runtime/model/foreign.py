"""Any other causal model: transformers computes its layers, our pages hold its keys and values.

transformers lets a model's attention be replaced by a registered function. Ours takes each layer's new queries, keys and
values, writes the latter into the pages and attends over them; the model itself sees one row of tokens and no cache. It
is slower than our decoder, and each batch is the same ragged row.

What a model needs beyond that (its own cache, biases by position, sinks, a state that is no keys and values) is found when it
is loaded, by reading one token, and refused in one line.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenrouter_kernels as kernels
import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig
from tokenrouter.models.errors import ModelError
from tokenrouter.models.locate import Located
from tokenrouter.runtime.model.batch import ExtendBatch, ExtendOutput, Extension
from tokenrouter.runtime.model.kv import KVCache, KVShape

_NAME = "tokenrouter_paged"
_PLAIN = ("dropout", "position_ids", "cache_position")
_running = (
    threading.local()
)  # the call whose attention it is: transformers passes none of ours through


@dataclass(slots=True)
class _Call:
    """One forward pass."""

    batch: ExtendBatch
    cache: KVCache | None  # None while shapes are found out
    shapes: dict[int, KVShape] = field(default_factory=dict)
    problem: str = ""


def _attention(
    module: Any,
    query: Tensor,  # [1, heads, T, D]
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attend over the pages, in the form that transformers calls: -> [1, T, heads, E]."""
    call: _Call = _running.call
    q, k, v = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    layer = int(module.layer_idx)
    if call.cache is None:
        given = {n for n, x in rest.items() if x is not None and not isinstance(x, bool)}
        unknown = sorted(given.difference(_PLAIN))
        if unknown:
            call.problem = f"its attention takes `{unknown[0]}`"
        if layer in call.shapes:
            call.problem = "a layer attends twice"
        call.shapes[layer] = KVShape(k.shape[1], k.shape[2], v.shape[2])
        share = q.shape[1] // v.shape[1]
        return v.repeat_interleave(share, 1)[None], None
    call.cache.write(layer, call.batch.slots, k, v)
    found = kernels.paged_attention(
        q,
        call.cache.keys[layer],
        call.cache.values[layer],
        call.batch.ragged,
        q.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
    )
    return found[None], None


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A transformers model over our pages."""

    config: ModelConfig
    dtype: torch.dtype
    model: Any  # transformers.PreTrainedModel
    shapes: list[KVShape]  # by layer

    def new_cache(self, pages: int, page_size: int) -> KVCache:
        """Return empty pages of this model's shape."""
        return KVCache.new(self.shapes, pages, page_size, self.dtype)

    @torch.inference_mode()
    def embed(self, tokens: Tensor) -> Tensor:
        """Return the input embeddings of tokens: [B] -> [B, H]."""
        found: Tensor = self.model.get_input_embeddings()(tokens)
        return found

    @torch.inference_mode()
    def extend(self, batch: ExtendBatch, cache: KVCache, *, hidden: bool = False) -> ExtendOutput:
        """Read the batch's tokens into the cache and return what those that sample need."""
        return _forward(self.model, _Call(batch, cache), hidden=hidden)


def _forward(model: Any, call: _Call, *, hidden: bool) -> ExtendOutput:
    _running.call = call
    try:
        found = model(
            input_ids=call.batch.token_ids[None],
            position_ids=call.batch.positions[None],
            use_cache=False,
            output_hidden_states=hidden,
            logits_to_keep=call.batch.logits_rows,
        )
    finally:
        del _running.call
    rows = found.hidden_states[-1][0, call.batch.logits_rows] if hidden else None
    return ExtendOutput(found.logits[0], rows)


def load_foreign(located: Located, config: ModelConfig, dtype: torch.dtype) -> ForeignModel:
    """Return a model that transformers knows; raises ModelError where it cannot run over pages."""
    model = _load(located.path, dtype)
    shapes = _shapes(model, config, located)
    return ForeignModel(config, dtype, model, shapes)


def _load(path: Path, dtype: torch.dtype) -> Any:
    # transformers takes seconds to import, and most models do without it.
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.utils import logging

    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=_NAME,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (ValueError, OSError, KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"transformers cannot load `{path}`: {reason}") from error
    model.requires_grad_(False)
    model.train(False)
    return model


@torch.inference_mode()
def _shapes(model: Any, config: ModelConfig, located: Located) -> list[KVShape]:
    """Read one token to see what each layer keeps."""
    call = _Call(ExtendBatch.of([Extension([0], 0, [0])], 1), None)
    try:
        _forward(model, call, hidden=False)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        call.problem = call.problem or " ".join(str(error).split())[:200]
    if not call.problem and sorted(call.shapes) != list(range(config.layers)):
        call.problem = (
            f"{len(call.shapes)} of its {config.layers} layers attend as transformers asks for"
        )
    if call.problem:
        raise ModelError(
            f"`{located.path}` (`{config.family}`) cannot run over paged keys and values: {call.problem}"
        )
    return [call.shapes[layer] for layer in range(config.layers)]
