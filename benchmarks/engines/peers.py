"""Other engines' servers as the dispatcher of `trc bench --baseline` sees a server: one token a request, prefix caching on.

    llama.cpp   the library behind a small server of this benchmark (`serve_llama_cpp.py`): continuous batching over slots with
                prefixes kept, without the chat, sampling and grammar machinery that its own server runs for each request
    vllm        `vllm serve` of the CPU build, automatic prefix caching

Each has the type of weights that it is fastest with on this processor, or of as many bits as ours have (`type_of`). Each model has one server. Both are asked for the likeliest token by id; neither tells a signal, so policies that read one
have no such side.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.export import Kind, directory_of, gguf_of
from engines.install import LLAMA, VLLM, python_of
from tokenrouter_kernels.native.build import has

from tokenrouter.bench.http import BenchError, Http

PEERS = ("llama.cpp", "vllm")
KINDS = {"bfloat16": Kind.BF16, "float16": Kind.F16, "Q8_0": Kind.Q8_0}  # of llama.cpp's files
POOL = 1 << 28  # bytes at least
READY_S = 600.0  # vLLM compiles its model first
LOCAL = "127.0.0.1"
Body = dict[str, Any]


@dataclass(eq=False)
class LlamaCpp:
    """One llama.cpp server."""

    http: Http

    async def ask(self, path: str, body: Body) -> Body:
        """Answer the dispatcher as our own server does."""
        del path
        status, answer = await self.http.json("/completion", {"prompt": body["prompt"]})
        if status != 200:
            raise BenchError(f"llama.cpp: {status}: {answer}")
        return traced(answer["token"])


@dataclass(eq=False)
class Vllm:
    """One vLLM server."""

    http: Http

    async def ask(self, path: str, body: Body) -> Body:
        """Answer the dispatcher as our own server does."""
        asked = {
            "prompt": body["prompt"],
            "max_tokens": 1,
            "temperature": 0.0,
            "return_token_ids": True,
        }
        answer = await self.http.ask(path, asked)
        return traced(answer["choices"][0]["token_ids"][0])


Peer = LlamaCpp | Vllm


def traced(token: int) -> Body:
    """Return an answer in the shape that the dispatcher reads."""
    return {"choices": [{"route": {"trace": [{"id": token, "signals": {}}]}}]}


def type_of(peer: str, own: str) -> str:
    """Return the type that an engine is measured in beside a type of ours: beside int8 the one of as many bits, else the fastest here of those that hold the same weights.

    Without AVX-512, llama.cpp was faster in float16 than in bfloat16 with prompts and batches, and vLLM three times as fast in float32
    with 16 requests (docs/performance.md). Where the processor has the instruction for bfloat16, no other type was tried; where it has
    AVX-512 without it, none at all.
    """
    if own == "int8":
        return {"llama.cpp": "Q8_0"}[peer]
    if has("avx512_bf16"):
        return "bfloat16"
    return {"llama.cpp": "float16", "vllm": "float32"}[peer]


@contextlib.contextmanager
def served(
    peer: str, uses: Sequence[str], *, kind: str, clients: int, context: int, threads: int
) -> Iterator[list[Peer] | None]:
    """Give one server a model, with weights of a kind (`type_of`), up until the end of the block; None where the engine cannot be had."""
    program = python_of(LLAMA if peer == "llama.cpp" else VLLM)
    if program is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        started = []
        for at, use in enumerate(uses):
            port = free_port()
            if peer == "llama.cpp":
                command = llama_command(program, use, kind, port, clients, context, threads)
                environment: dict[str, str] = {}
            else:
                command = vllm_command(program, use, kind, port, clients, context)
                environment = vllm_environment(program, at, threads)
            process = Process(f"{peer} with {use}", command, environment, port)
            stack.callback(process.close)
            started.append(process)
        for process in started:
            process.wait()
        own = LlamaCpp if peer == "llama.cpp" else Vllm
        yield [own(Http(process.url)) for process in started]


def llama_command(
    python: Path, use: str, kind: str, port: int, clients: int, context: int, threads: int
) -> list[str]:
    """Return how llama.cpp is started."""
    sizes = map(str, (port, clients, context, threads))
    return [
        str(python),
        str(Path(__file__).parent / "serve_llama_cpp.py"),
        str(gguf_of(use, KINDS[kind])),
        *sizes,
    ]


def vllm_command(
    python: Path, use: str, kind: str, port: int, clients: int, context: int
) -> list[str]:
    """Return how vLLM's server is started: as a module, since its command asks for metadata that the CPU build has not."""
    model = directory_of(use)
    return [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--host", LOCAL, "--port", str(port), "--dtype", kind),
        *("--max-model-len", str(context), "--max-num-seqs", str(clients)),
        # Of 32 tokens, the least its attention has; of 128, the default here, prefixes are known too rarely.
        *("--block-size", "32", "--enable-prefix-caching"),
        *("--kv-cache-memory-bytes", str(vllm_pool(model, kind, clients, context))),
        *("--disable-log-stats", "--disable-uvicorn-access-log"),
    ]


def vllm_pool(model: Path, kind: str, clients: int, context: int) -> int:
    """Return the bytes for keys and values of twice the tokens that are served at a time: vLLM takes them all at once."""
    number = 4 if kind == "float32" else 2
    shape = json.loads((model / "config.json").read_text(encoding="utf-8"))
    heads = shape["num_hidden_layers"] * shape["num_key_value_heads"]
    token = 2 * number * heads * shape["head_dim"]
    return max(POOL, 2 * clients * context * token)


def vllm_environment(python: Path, at: int, threads: int) -> dict[str, str]:
    """Return what vLLM reads of the environment: with one thread each, a core each; and the libraries that it wishes for.

    Left alone it keeps one core back, of two too.
    """
    places = sorted(os.sched_getaffinity(0))
    own = places[at * threads % len(places) :][:threads]
    found = {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, own)),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return found | preloaded(python)


def cores() -> int:
    """Return how many cores there are for this."""
    return len(os.sched_getaffinity(0))


def preloaded(python: Path) -> dict[str, str]:
    """Return how the libraries come into vLLM that its documentation wants loaded first, of those that are here."""
    places = [python.parent.parent / "lib", Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"]
    names = ("libtcmalloc_minimal.so.4", "libiomp5.so")
    found = [next((p / name for p in places if (p / name).exists()), None) for name in names]
    return {"LD_PRELOAD": ":".join(str(each) for each in found if each is not None)}


class Process:
    """One server and its last words."""

    def __init__(
        self, what: str, command: list[str], environment: dict[str, str], port: int
    ) -> None:
        self.what, self.url = what, f"http://{LOCAL}:{port}/v1"
        self._health = f"http://{LOCAL}:{port}/health"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Return when the server answers; raises BenchError where it will not."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise BenchError(f"{self.what} did not start: {self.last_words()}")
            with contextlib.suppress(OSError, urllib.error.URLError):
                if urllib.request.urlopen(self._health, timeout=5).status == 200:
                    return
            time.sleep(0.2)
        raise BenchError(f"{self.what} was not ready after {READY_S:.0f} s: {self.last_words()}")

    def last_words(self) -> str:
        """Return the last lines of its log."""
        self._log.seek(0)
        return " / ".join(self._log.read().decode("utf-8", "replace").strip().splitlines()[-3:])

    def close(self) -> None:
        """End the server and all that it started: vLLM's workers outlive their parent."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        port: int = probe.getsockname()[1]
        return port
