"""The decoder on a GPU: the same layers as `Decoder`, with everything between the matrix products in Triton kernels.

    each layer:  q = write_qkv(qkv(normed))          norms, rotary and the write into the cache in one pass
                 out = o(attention over pages)       split over the context, equal bits whatever the batch
                 normed, x = add_rms_norm(out, x)    the residual stays in the model's dtype
                 down = down(silu_mul(gate_up(normed)))
                 normed, x = add_rms_norm(down, x)   by the norm of the next layer, or the last

INVARIANT: between its first and its last operation nothing is read back and no shape depends on a tensor, so that a step can be
captured; `tests/runtime/test_cuda.py` runs it on tensors without data, where both would fail.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tokenrouter.runtime.model.batch import ExtendBatch, ExtendOutput
from tokenrouter.runtime.model.decoder import Decoder
from tokenrouter.runtime.model.kv import KVCache


@dataclass(frozen=True, slots=True)
class CudaDecoder(Decoder):
    """A model of the Llama family on a GPU."""

    @torch.inference_mode()
    def extend(self, batch: ExtendBatch, cache: KVCache, *, hidden: bool = False) -> ExtendOutput:
        """Read the batch's tokens into the cache and return what those that sample need."""
        # Triton is needed on a GPU only.
        from tokenrouter_kernels import triton as fast  # noqa: PLC0415

        c, eps = self.config, self.config.rms_eps
        paged = fast.Paged.of(batch.ragged)
        cos, sin = self.rotary(batch.positions, max(batch.ragged.lengths))
        x = self.embedding.index_select(0, batch.token_ids)
        normed = fast.rms_norm(x, self.layers[0].attention_norm, eps)
        for at, layer in enumerate(self.layers):
            q = fast.write_qkv(
                layer.qkv(normed),
                cos,
                sin,
                batch.slots,
                cache.keys[at],
                cache.values[at],
                c.heads,
                query_norm=layer.query_norm,
                key_norm=layer.key_norm,
                eps=eps,
            )
            attended = self._look(at, q, cache, paged).flatten(1)
            if at == len(self.layers) - 1:
                # From here on, rows that nobody samples from matter to nobody.
                rows = batch.logits_rows
                x, attended = x.index_select(0, rows), attended.index_select(0, rows)
                if not x.shape[0]:
                    break
            normed, x = fast.add_rms_norm(layer.out(attended), x, layer.feed_forward_norm, eps)
            down = layer.down(fast.silu_mul(layer.gate_up(normed)))
            normed, x = fast.add_rms_norm(down, x, self._next_norm(at), eps)
        else:
            return ExtendOutput(self.head(normed), normed if hidden else None)
        nothing = x.new_empty(0, c.vocab_rows)
        return ExtendOutput(nothing, x if hidden else None)

    def _look(self, at: int, q: Tensor, cache: KVCache, paged: object) -> Tensor:
        """Return what each token's heads found: [T, heads, D]."""
        from tokenrouter_kernels import triton as fast  # noqa: PLC0415

        c = self.config
        assert isinstance(paged, fast.Paged)
        window = c.windows[at] if c.windows else None
        return fast.paged_attention(
            q, cache.keys[at], cache.values[at], paged, c.head_dim**-0.5, window=window
        )

    def _next_norm(self, at: int) -> Tensor:
        return self.layers[at + 1].attention_norm if at + 1 < len(self.layers) else self.norm
