"""llama.cpp through llama-cpp-python's bindings: its batched decoding, one sequence a request."""

from __future__ import annotations

import ctypes
import os
import sys
import time

import llama_cpp as ll
import numpy as np
from worker import serve

BATCH, REQUESTS, CONTEXT = 2048, 16, 8192  # tokens a batch, sequences, tokens of all sequences


def main() -> None:
    """Load and serve."""
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(sys.argv[1].encode(), ll.llama_model_default_params())
    settings = ll.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch = CONTEXT, BATCH, 512
    settings.n_seq_max = REQUESTS
    settings.n_threads = settings.n_threads_batch = len(os.sched_getaffinity(0))
    context = ll.llama_init_from_model(model, settings)
    vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    batch = ll.llama_batch_init(BATCH, 0, 1)

    def read(prompts: list[list[int]]) -> list[int]:
        """Read prompts, as many at a time as a batch holds."""
        at_a_time = BATCH // len(prompts[0])
        out = []
        for begin in range(0, len(prompts), at_a_time):
            part = prompts[begin : begin + at_a_time]
            out += decode([(begin + at, 0, prompt) for at, prompt in enumerate(part)])
        return out

    def decode(parts: list[tuple[int, int, list[int]]]) -> list[int]:
        """Read (sequence, start, tokens) parts; return the likeliest token after each."""
        n, rows = 0, []
        for sequence, start, tokens in parts:
            for at, token in enumerate(tokens):
                batch.token[n], batch.pos[n], batch.n_seq_id[n] = token, start + at, 1
                batch.seq_id[n][0] = sequence
                batch.logits[n] = at == len(tokens) - 1
                n += 1
            rows.append(n - 1)
        batch.n_tokens = n
        assert ll.llama_decode(context, batch) == 0
        out = []
        for row in rows:
            logits = ll.llama_get_logits_ith(context, row)
            address = ctypes.cast(logits, ctypes.c_void_p).value
            assert address
            values = np.ctypeslib.as_array((ctypes.c_float * vocabulary).from_address(address))
            out.append(int(values.argmax()))
        return out

    def run(prompts: list[list[int]], tokens: int) -> tuple[float, float, list[list[int]]]:
        assert len(prompts) <= REQUESTS and len(prompts[0]) <= BATCH
        assert len(prompts[0]) + tokens <= CONTEXT // REQUESTS
        ll.llama_memory_clear(ll.llama_get_memory(context), True)
        begun = time.perf_counter()
        out = read(prompts)
        first = time.perf_counter()
        written = [out]
        length = len(prompts[0])
        for step in range(tokens - 1):
            out = decode([(at, length + step, [token]) for at, token in enumerate(out)])
            written.append(out)
        end = time.perf_counter()
        return first - begun, end - first, [list(each) for each in zip(*written, strict=True)]

    serve(run)


main()
