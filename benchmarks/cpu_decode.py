"""One model on this machine's processor, by our engine and by those that people would pick instead.

    python benchmarks/cpu_decode.py [--engines ours ours-int8 ours-torch transformers llama.cpp llama.cpp-q4 vllm]
                                    [--requests 1 4 8 16] [--tokens 128] [--rounds 3] [--json FILE]

The model is SmolLM2-135M-Instruct, which the demo fetches, in bfloat16 for all but those that say otherwise. The same prompts of
100 tokens, greedy, outputs of a fixed length. All engines are loaded once and take turns: each round runs every engine once at every
number of requests. Peers run in virtual environments of their own under the cache, made at the first use (llama.cpp is
compiled, which takes minutes); one that cannot be installed is named and left out.

Decode: tokens/s after the last prompt is read. First: ms until all requests have their first token. Medians; the spread is
(largest - smallest) / median over the rounds. Ratio: to the best peer in the same model size and dtype.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines import export, install
from engines.peers import cores, vllm_environment

from tokenrouter.demo.fetch import fetch

ROOT = Path(__file__).resolve().parents[1]
WORKERS = Path(__file__).resolve().parent / "engines"
OURS = ("ours", "ours-int8", "ours-torch")
PEERS = ("transformers", "llama.cpp", "llama.cpp-q4", "vllm")
VENVS = {"llama.cpp": install.LLAMA, "llama.cpp-q4": install.LLAMA, "vllm": install.VLLM}
LOAD_S = 900  # vLLM compiles its model first


def main() -> None:
    """Run the engines in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", default=[*OURS, *PEERS], choices=[*OURS, *PEERS])
    parser.add_argument("--requests", nargs="+", type=int, default=[1, 4, 8, 16], metavar="N")
    parser.add_argument("--tokens", type=int, default=128, help="output tokens (%(default)s)")
    parser.add_argument("--prompt", type=int, default=100, help="prompt tokens (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    args = parser.parse_args()
    files = prepare()
    load = os.getloadavg()[0]
    print(f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores, load {load:.1f} at the start")
    engines = [engine for name in args.engines if (engine := begin(name, files)) is not None]
    if not engines:
        sys.exit("no engine runs here")
    for round_ in range(args.rounds):
        for n in args.requests:
            for engine in engines:
                engine.measure(n, args.prompt, args.tokens)
        print(f"round {round_ + 1} of {args.rounds} done", file=sys.stderr, flush=True)
    for engine in engines:
        engine.end()
    show(engines, args.requests)
    if args.json:
        args.json.write_text(json.dumps({e.name: e.as_json() for e in engines}, indent=1))


@dataclass
class Files:
    """The model in the forms that engines read."""

    directory: Path  # Hugging Face's layout, bfloat16
    gguf: Path  # bfloat16
    packed: Path  # 4-bit, as published


def prepare() -> Files:
    """Fetch the demo's large model, and write it down in the other forms."""
    packed = fetch()
    return Files(export.directory_of("demo:large"), export.gguf_of("demo:large"), packed)


def python_of(name: str) -> Path | None:
    """Return the Python that an engine runs in, its environment made where it is missing; None where it cannot be."""
    package = VENVS.get(name)
    return Path(sys.executable) if package is None else install.python_of(package)


class Engine:
    """A process with one engine in it."""

    def __init__(self, name: str, process: subprocess.Popen[str], ready: dict[str, Any]) -> None:
        self.name = name
        self.process = process
        self.ready_s = float(ready["seconds"])
        self.memory_mb = 0.0
        self.decode: dict[int, list[float]] = {}  # tokens/s by number of requests
        self.first: dict[int, list[float]] = {}  # ms

    def measure(self, n: int, prompt: int, tokens: int) -> None:
        """Run n requests once."""
        found = ask(self.process, {"requests": n, "prompt": prompt, "tokens": tokens})
        self.decode.setdefault(n, []).append(n * (tokens - 1) / found["decode_s"])
        self.first.setdefault(n, []).append(1000 * found["first_s"])
        self.memory_mb = found["memory_mb"]

    def end(self) -> None:
        """Stop the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        kill_all(self.process)

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            "ready_s": self.ready_s,
            "memory_mb": self.memory_mb,
            "decode_tokens_per_s": self.decode,
            "first_ms": self.first,
        }


def begin(name: str, files: Files) -> Engine | None:
    """Start an engine; None where it does not run here."""
    python = python_of(name)
    if python is None:
        return None
    environment = dict(os.environ)
    if name == "vllm":
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "1"} | vllm_environment(
            python, at=0, threads=cores()
        )
    if name == "ours-torch":
        environment["TOKENROUTER_NATIVE"] = "0"
    kind = "ours" if name in OURS else name.removesuffix("-q4").replace(".", "_")
    script = WORKERS / f"run_{kind}.py"
    model = files.directory
    if name.startswith("llama"):
        model = files.packed if name.endswith("q4") else files.gguf
    begun = time.monotonic()
    process = subprocess.Popen(
        [str(python), str(script), str(model), "int8" if name == "ours-int8" else "none"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("BENCH_STDERR") else subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        answer(process)
        ready = {"seconds": time.monotonic() - begun}
        ask(
            process, {"requests": 1, "prompt": 20, "tokens": 4}
        )  # what is made at the first use is made
        ask(process, {"requests": 2, "prompt": 20, "tokens": 4})
    except EngineError as error:
        print(f"{name}: {error}; left out", file=sys.stderr, flush=True)
        kill_all(process)
        return None
    return Engine(name, process, ready)


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill an engine and what it started: vLLM's workers outlive their parent."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class EngineError(Exception):
    """An engine ended."""


def ask(process: subprocess.Popen[str], question: dict[str, int]) -> dict[str, float]:
    """Return the answer of an engine's process."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise EngineError("it ended") from error
    return answer(process)


def answer(process: subprocess.Popen[str]) -> dict[str, float]:
    """Return the next line that is an answer; engines print other things too."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith('{"bench"'):
            found: dict[str, float] = json.loads(line)["bench"]
            return found
    raise EngineError(f"it ended with status {process.wait()}; BENCH_STDERR=1 shows what it says")


def measured(values: list[float]) -> str:
    """Return the median of the rounds and how far apart they are."""
    middle = statistics.median(values)
    return f"{middle:8.0f} ({100 * (max(values) - min(values)) / middle:2.0f}%)"


def show(engines: list[Engine], sizes: list[int]) -> None:
    """Print the tables."""
    head = "".join(f"{n:>14}" for n in sizes)
    print(
        f"\ndecode, tokens/s at N requests (spread)\n{'':14}{head}{'ready s':>10}{'memory MB':>11}"
    )
    for engine in engines:
        cells = "".join(measured(engine.decode[n]) for n in sizes)
        print(f"{engine.name:14}{cells}{engine.ready_s:10.1f}{engine.memory_mb:11.0f}")
    print(f"\nfirst token of all, ms (spread)\n{'':14}{head}")
    for engine in engines:
        cells = "".join(measured(engine.first[n]) for n in sizes)
        print(f"{engine.name:14}{cells}")
    peers = [engine for engine in engines if engine.name in ("transformers", "llama.cpp", "vllm")]
    ours = [engine for engine in engines if engine.name in OURS]
    if peers and ours:
        print(
            f"\nratio to the best bfloat16 peer: decode, then first token (above 1: ours is faster)\n{'':14}{head}"
        )
    for engine in ours if peers else []:
        cells = ""
        for n in sizes:
            best = max(statistics.median(peer.decode[n]) for peer in peers)
            soonest = min(statistics.median(peer.first[n]) for peer in peers)
            decode, first = statistics.median(engine.decode[n]), statistics.median(engine.first[n])
            cells += f"{decode / best:8.2f} {soonest / first:5.2f}"
        print(f"{engine.name:14}{cells}")


if __name__ == "__main__":
    main()
