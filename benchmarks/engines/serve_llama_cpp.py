"""llama.cpp behind HTTP: `serve_llama_cpp.py MODEL.gguf PORT SLOTS CONTEXT THREADS [--apart]`, a token a request, prefixes kept in slots.

All requests that wait are read in one batch (llama.cpp's continuous batching, through the bindings of llama-cpp-python), each in the
slot that knows the longest beginning of its prompt. Nothing else is offered: `POST /completion {"prompt": ids}` gives the
likeliest next id.

The slots have one store of keys and values between them (`kv_unified`). With a store each (`--apart`), the library takes a batch apart where
sequences bring different numbers of tokens, or come in another order than that of their stores, and reads all weights for each part. Runs in the environment of llama-cpp-python; needs nothing else.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
from dataclasses import dataclass, field
from typing import Any

import llama_cpp as ll
import numpy as np

BATCH = 2048  # tokens
Ids = Any  # a numpy array of int32


@dataclass
class Slot:
    """What one sequence of the context holds."""

    ids: Ids = field(default_factory=lambda: np.empty(0, np.int32))
    used: int = 0  # by the number of the batch


@dataclass
class Waiting:
    """One request."""

    ids: Ids
    done: asyncio.Future[int]


class Engine:
    """One model with its slots."""

    def __init__(self, path: str, slots: int, context: int, threads: int, apart: bool) -> None:
        ll.llama_backend_init()
        model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        settings = ll.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = slots * context, BATCH, 512
        settings.n_seq_max = slots
        settings.kv_unified = not apart
        settings.n_threads = settings.n_threads_batch = threads
        self.context = ll.llama_init_from_model(model, settings)
        self.memory = ll.llama_get_memory(self.context)
        self.size = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
        self.batch = ll.llama_batch_init(BATCH, 0, 1)
        self.slots = [Slot() for _ in range(slots)]
        self.n = 0

    def choose(self, ids: Ids, free: list[int]) -> tuple[int, int]:
        """Return the free slot that knows the most of a prompt, and how much it knows; the longest unused one where none knows a tenth.

        Prompts that merely begin with the same word would otherwise take each other's slot again and again.
        """
        known = {at: min(common(ids, self.slots[at].ids), len(ids) - 1) for at in free}
        known = {at: n if n > len(ids) // 10 else 0 for at, n in known.items()}
        at = max(free, key=lambda at: (known[at], -self.slots[at].used))
        return at, known[at]

    def step(self, prompts: list[Ids]) -> list[int]:
        """Read what is new of each prompt; return the likeliest id after each."""
        self.n += 1
        free = list(range(len(self.slots)))
        out: list[int] = [0] * len(prompts)
        rows: list[tuple[int, int]] = []  # place in the batch, request
        n = 0
        chosen = []
        for request, ids in enumerate(prompts):
            at, known = self.choose(ids, free)
            free.remove(at)
            chosen.append((at, known, request))
        for at, known, request in sorted(chosen):
            ids = prompts[request]
            ll.llama_memory_seq_rm(self.memory, at, known, -1)
            for place in range(known, len(ids)):
                if n == BATCH:
                    self.decode(n, rows, out)
                    n, rows = 0, []
                self.batch.token[n], self.batch.pos[n] = int(ids[place]), place
                self.batch.n_seq_id[n], self.batch.seq_id[n][0] = 1, at
                self.batch.logits[n] = place == len(ids) - 1
                n += 1
            rows.append((n - 1, request))
            self.slots[at] = Slot(ids, self.n)
        self.decode(n, rows, out)
        return out

    def decode(self, n: int, rows: list[tuple[int, int]], out: list[int]) -> None:
        """Run one batch and note the likeliest ids."""
        self.batch.n_tokens = n
        assert ll.llama_decode(self.context, self.batch) == 0
        for row, request in rows:
            logits = ll.llama_get_logits_ith(self.context, row)
            address = ctypes.cast(logits, ctypes.c_void_p).value
            assert address
            values = np.ctypeslib.as_array((ctypes.c_float * self.size).from_address(address))
            out[request] = int(values.argmax())


def common(one: Ids, two: Ids) -> int:
    """Return how many ids two prompts begin with alike."""
    n = min(len(one), len(two))
    apart = np.flatnonzero(one[:n] != two[:n])
    return int(apart[0]) if len(apart) else n


class Server:
    """HTTP in front of an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: list[Waiting] = []
        self.came = asyncio.Event()

    async def work(self) -> None:
        """Answer all that wait, batch after batch."""
        loop = asyncio.get_running_loop()
        while True:
            await self.came.wait()
            now, self.waiting = self.waiting, []
            self.came.clear()
            most = len(self.engine.slots)
            for begin in range(0, len(now), most):
                part = now[begin : begin + most]
                prompts = [one.ids for one in part]
                found = await loop.run_in_executor(None, self.engine.step, prompts)
                for one, token in zip(part, found, strict=True):
                    one.done.set_result(token)

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it closes."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = head.partition("content-length:")[2].split("\r\n", 1)[0].strip()
                body = await reader.readexactly(int(length or 0))
                data = await self.answer(body) if body else b"{}"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, body: bytes) -> bytes:
        """Return the next token of a prompt."""
        ids = np.array(json.loads(body)["prompt"], np.int32)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiting(ids, done))
        self.came.set()
        return b'{"token": %d}' % await done


async def main() -> None:
    """Load and serve until a signal."""
    path, port, slots, context, threads = sys.argv[1], *map(int, sys.argv[2:6])
    server = Server(Engine(path, slots, context, threads, "--apart" in sys.argv[6:]))
    listening = await asyncio.start_server(server.client, "127.0.0.1", port, limit=1 << 24)
    async with listening:
        await asyncio.gather(server.work(), listening.serve_forever())


asyncio.run(main())
