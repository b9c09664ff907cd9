"""The same decoder as `decoder.py`, a step of which is one call into compiled kernels: bfloat16 or float32 on a CPU with AVX2 or AVX-512.

Between its operators a torch decoder of a small model spends more time than in them. In bfloat16, weights, keys, values and queries are
bfloat16; the residual stream, norms, softmax and logits are float32, and so are linear inputs but where AMX multiplies them, so that it
is nearer to the model in float32 than torch's bfloat16 is. In float32 all is. A row's bits do not depend on the rest of the batch.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import torch
from tokenrouter_kernels import native
from tokenrouter_kernels.native import LayerRecord, ModelRecord, Packed, StepRecord
from tokenrouter_kernels.native.certainty import Looked
from torch import Tensor

from tokenrouter.models.config import ModelConfig
from tokenrouter.models.errors import ModelError
from tokenrouter.runtime.model.batch import ExtendBatch, ExtendOutput
from tokenrouter.runtime.model.kv import KVCache, KVShape
from tokenrouter.runtime.model.linears import quantised
from tokenrouter.runtime.model.raw import RawLayer, RawLinear
from tokenrouter.runtime.model.rope import RotaryTable

_PANEL = 32


@dataclass(frozen=True, slots=True)
class NativeDecoder:
    """A model of the Llama family, packed for the native kernels."""

    config: ModelConfig
    dtype: torch.dtype
    embedding: Tensor | None  # [vocab rows, H]; None: the head's weight
    head: Packed
    rotary: RotaryTable  # in float32
    library: ctypes.CDLL
    record: ModelRecord
    held: list[object]  # what the record points into
    scratch: Scratch
    places: dict[int, Places] = field(default_factory=dict)  # of caches, by identity

    def new_cache(self, pages: int, page_size: int) -> KVCache:
        """Return empty pages of this model's shape."""
        c = self.config
        shape = KVShape(c.kv_heads, c.head_dim, c.head_dim)
        return KVCache.new([shape] * c.layers, pages, page_size, self.dtype)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the input embeddings of tokens: [B] -> [B, H]."""
        return self.head.rows(tokens) if self.embedding is None else self.embedding[tokens]

    @torch.inference_mode()
    def extend(self, batch: ExtendBatch, cache: KVCache, *, hidden: bool = False) -> ExtendOutput:
        """Read the batch's tokens into the cache and return what those that sample need, in float32."""
        samples, ragged = batch.logits_rows.shape[0], batch.ragged
        logits = torch.empty(samples, self.record.head.n)
        state = torch.empty(samples, self.config.hidden) if hidden else None
        ids, columns = Looked.new(samples) if batch.vocabulary else (None, None)
        rotary = self.rotary.table(max(ragged.lengths))
        offsets = (ctypes.c_int64 * len(ragged.offsets))(*ragged.offsets)
        lengths = (ctypes.c_int64 * len(ragged.lengths))(*ragged.lengths)
        table = ragged.page_table.contiguous()
        places = self._places(cache)
        step = StepRecord(
            tokens=batch.token_ids.shape[0],
            requests=ragged.requests,
            samples=samples,
            pages=table.shape[1],
            page_size=ragged.page_size,
            turned=rotary.shape[2],
            token_ids=batch.token_ids.data_ptr(),
            positions=batch.positions.data_ptr(),
            slots=batch.slots.data_ptr(),
            rows=batch.logits_rows.data_ptr(),
            offsets=ctypes.addressof(offsets),
            lengths=ctypes.addressof(lengths),
            page_table=table.data_ptr(),
            rotary=rotary.data_ptr(),
            keys=ctypes.addressof(places.keys),
            values=ctypes.addressof(places.values),
            logits=logits.data_ptr(),
            hidden=None if state is None else state.data_ptr(),
            vocabulary=min(batch.vocabulary, self.record.head.n),
            ids=None if ids is None else ids.data_ptr(),
            columns=None if columns is None else columns.data_ptr(),
        )
        status = self.library.tr_step(
            ctypes.byref(self.record), ctypes.byref(step), self.scratch.at, torch.get_num_threads()
        )
        if status != 0:
            raise MemoryError("no memory for the scratch of a step")
        return ExtendOutput(logits, state, ids, columns)

    def _places(self, cache: KVCache) -> Places:
        found = self.places.get(id(cache))
        if found is None or found.cache is not cache:
            found = self.places[id(cache)] = Places(cache)
        return found


class Places:
    """Where a cache's layers lie."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        array = ctypes.c_void_p * len(cache.keys)
        self.keys = array(*(keys.data_ptr() for keys in cache.keys))
        self.values = array(*(values.data_ptr() for values in cache.values))


class Scratch:
    """Memory that a model's steps use again."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.at = library.tr_scratch_new()
        if not self.at:
            raise MemoryError("no memory for the scratch of a model")

    def __del__(self) -> None:
        self.library.tr_scratch_free(self.at)


def kernels() -> ctypes.CDLL | None:
    """Return the compiled kernels, None where there are none; raises ModelError where the environment asks for unknown ones."""
    try:
        return native.library()
    except native.NativeError as error:
        raise ModelError(str(error)) from None


def fits(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Return whether the native kernels run a model of these sizes."""
    return dtype in (torch.bfloat16, torch.float32) and config.head_dim % 2 == 0


class Maker:
    """Packs a decoder's weights, layer by layer."""

    def __init__(self, library: ctypes.CDLL, config: ModelConfig, *, int8: bool) -> None:
        self.library = library
        self.config = config
        self.int8 = int8
        self.held: list[object] = []
        self.layers = (LayerRecord * config.layers)()

    def layer(self, at: int, raw: RawLayer) -> None:
        """Take one layer."""
        record, windows = self.layers[at], self.config.windows
        record.attention_norm = self._vector(raw.attention_norm)
        record.query_norm = self._vector(raw.query_norm)
        record.key_norm = self._vector(raw.key_norm)
        record.feed_forward_norm = self._vector(raw.feed_forward_norm)
        record.qkv = self._linear(raw.qkv).record
        record.out = self._linear(raw.out).record
        bias = raw.gate_up.bias
        alternating = RawLinear(
            _alternating(raw.gate_up.weight),
            None if bias is None else _alternating(bias[:, None]).view(-1),
        )
        record.gate_up = self._linear(alternating).record
        record.down = self._linear(raw.down).record
        record.window = (windows[at] if windows else None) or 0

    def finish(
        self,
        dtype: torch.dtype,
        embedding: Tensor | None,
        norm: Tensor,
        head: Tensor,
        rotary: RotaryTable,
    ) -> NativeDecoder:
        """Return the decoder; without an embedding, whose weight is not rounded, the head's is used."""
        c = self.config
        logits = self._linear(RawLinear(head, None))
        record = ModelRecord(
            layers=c.layers,
            hidden=c.hidden,
            intermediate=c.intermediate,
            heads=c.heads,
            kv_heads=c.kv_heads,
            width=c.head_dim,
            eps=c.rms_eps,
            wide=dtype == torch.float32,
            embedding=None if embedding is None else embedding.data_ptr(),
            norm=self._vector(norm),
            layer=self.layers,
            head=logits.record,
        )
        return NativeDecoder(
            config=c,
            dtype=dtype,
            embedding=embedding,
            head=logits,
            rotary=rotary,
            library=self.library,
            record=record,
            held=[*self.held, self.layers],
            scratch=Scratch(self.library),
        )

    def _vector(self, values: Tensor | None) -> int | None:
        if values is None:
            return None
        whole = values.float().contiguous()
        self.held.append(whole)
        return whole.data_ptr()

    def _linear(self, raw: RawLinear) -> Packed:
        if self.int8:
            weight, scale = quantised(raw.weight)
            made = native.packed(self.library, weight, raw.bias, scale)
        else:
            made = native.packed(self.library, raw.weight, raw.bias)
        self.held.append(made)
        return made


def _alternating(gate_up: Tensor) -> Tensor:
    """Return the rows of gate and up in turn, a panel of each: [2 F, K] -> [2 F filled up, K]."""

    def whole(half: Tensor) -> Tensor:
        return torch.nn.functional.pad(half, (0, 0, 0, -half.shape[0] % _PANEL))

    k = gate_up.shape[1]
    halves = [whole(half).view(-1, _PANEL, k) for half in gate_up.chunk(2)]
    return torch.stack(halves, 1).view(-1, k)
