"""One model on this machine's processor, by our engine and by those that people would pick instead.

    python benchmarks/cpu_decode.py [--engines ours ours-int8 ours-torch transformers llama.cpp llama.cpp-q8 llama.cpp-q4 vllm]
                                    [--requests 1 4 8 16] [--tokens 128] [--rounds 3] [--json FILE]

The model is SmolLM2-135M-Instruct, which the demo fetches, in bfloat16 for all but those that say otherwise: ours-int8 (8 bits by
output), llama.cpp-q8 (Q8_0, 8 bits by 32 inputs), llama.cpp-q4 (the 4-bit file as it was published). Engines that are slow with
bfloat16 on a processor that has no instruction for it are there in the type that people would give them instead, with the same
weights: transformers-f32, vllm-f32, llama.cpp-f16, llama.cpp-f32. The same prompts of
100 tokens, greedy, outputs of a fixed length. All engines are loaded once and take turns: each round runs every engine once at every
number of requests, the order turns round with every round, and vLLM's processes, which look for more to do for a second,
are waited for. Peers run in virtual environments of their own under the cache, made at the first use (llama.cpp is
compiled, which takes minutes); one that cannot be installed is named and left out.

Decode: tokens/s after the last prompt is read. First: ms until all requests have their first token. Medians; the spread is
(largest - smallest) / median over the rounds. Ratio: to the best peer of as many bits a weight, or, beside bfloat16, of more. Memory: of an engine's processes, what they
share counted once, in millions of bytes. Agreement: of the first ids of all answers, those that are as the first engine's; two ways of rounding
part sooner or later, and everything behind that counts as different.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from engines import export, install
from engines.peers import cores, vllm_environment
from others import Others

from tokenrouter.demo.fetch import fetch

ROOT = Path(__file__).resolve().parents[1]
WORKERS = Path(__file__).resolve().parent / "engines"
OURS = ("ours", "ours-int8", "ours-torch")
FULL = (  # of 16 bits, or of more where an engine is faster with them
    *("transformers", "transformers-f32"),
    *("llama.cpp", "llama.cpp-f16", "llama.cpp-f32"),
    *("vllm", "vllm-f32"),
)
PEERS = (*FULL, "llama.cpp-q8", "llama.cpp-q4")
DEFAULT = (*OURS, "transformers", "llama.cpp", "llama.cpp-q8", "llama.cpp-q4", "vllm")
VENVS = {"llama.cpp": install.LLAMA, "vllm": install.VLLM}  # by `base`
RIVALS = {"ours": FULL, "ours-torch": FULL, "ours-int8": ("llama.cpp-q8",)}
FORMS = {"f16": export.Kind.F16, "f32": export.Kind.F32, "q8": export.Kind.Q8_0}  # of llama.cpp
LOAD_S = 900.0  # vLLM compiles its model first
ANSWER_S = 600.0
WARM = 10**6  # of loads that are not measured
AGAIN = 32  # tokens that each engine writes before the first measurement
REST_S = {"vllm": 3.0}  # after a measurement, by `base`


def main() -> None:
    """Run the engines in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", default=DEFAULT, choices=[*OURS, *PEERS])
    parser.add_argument("--requests", nargs="+", type=int, default=[1, 4, 8, 16], metavar="N")
    parser.add_argument("--tokens", type=int, default=128, help="output tokens (%(default)s)")
    parser.add_argument("--prompt", type=int, default=100, help="prompt tokens (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    args = parser.parse_args()
    packed = fetch()
    load = os.getloadavg()[0]
    print(f"{time.strftime('%d %b %Y')}, {os.cpu_count()} cores, load {load:.1f} at the start")
    engines: list[Engine] = []
    try:
        for name in args.engines:
            if (engine := begin(name, packed)) is not None:
                engines.append(engine)
        if not engines:
            sys.exit("no engine runs here")
        time.sleep(max(REST_S.get(base(engine.name), 0.0) for engine in engines))
        # Starting is work too, and the first engines have been idle for minutes.
        for engine in engines:
            again = {"requests": 1, "prompt": args.prompt, "tokens": AGAIN, "load": WARM}
            ask(engine.name, engine.process, again)
            time.sleep(REST_S.get(base(engine.name), 0.2))
        other = Others()
        for round_ in range(args.rounds):
            for n in args.requests:
                for engine in reversed(engines) if round_ % 2 else engines:
                    engine.measure(n, args.prompt, args.tokens)
                    time.sleep(REST_S.get(base(engine.name), 0.2))
            say(f"round {round_ + 1} of {args.rounds} done")
            if args.json:
                args.json.write_text(json.dumps({e.name: e.as_json() for e in engines}, indent=1))
        taken = other.cores()  # before any engine ends, whose time nobody knows any more
    except EngineError as error:
        sys.exit(str(error))
    finally:
        for engine in engines:
            engine.end()
    print(f"other processes took {taken:.2f} cores meanwhile")
    show(engines, args.requests)


def base(name: str) -> str:
    """Return which engine it is, whatever the type of its weights."""
    return name.partition("-")[0]


def kind_of(name: str) -> str:
    """Return the type of an engine's weights, as its name has it."""
    return name.partition("-")[2]


def model_of(name: str, packed: Path) -> Path:
    """Return the demo's large model in the form that an engine reads, written where it is missing."""
    if base(name) != "llama.cpp":
        return export.directory_of("demo:large")
    kind = kind_of(name)
    return (
        packed if kind == "q4" else export.gguf_of("demo:large", FORMS.get(kind, export.Kind.BF16))
    )


def argument_of(name: str) -> str:
    """Return what an engine's script is told beside the model: ours how to round, others the type to compute in."""
    if base(name) == "ours":
        return "int8" if kind_of(name) == "int8" else "none"
    return "float32" if kind_of(name) == "f32" else "bfloat16"


def python_of(name: str) -> Path | None:
    """Return the Python that an engine runs in, its environment made where it is missing; None where it cannot be."""
    package = VENVS.get(base(name))
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
        self.ids: dict[tuple[int, int], list[list[int]]] = {}  # by number of requests and round

    def measure(self, n: int, prompt: int, tokens: int) -> None:
        """Run n requests once."""
        round_ = len(self.first.get(n, []))
        load = 1000 * round_ + n  # the same prompts for every engine, new ones in every round
        asked = {"requests": n, "prompt": prompt, "tokens": tokens, "load": load}
        found = ask(self.name, self.process, asked)
        self.ids[n, round_] = found["ids"]
        self.decode.setdefault(n, []).append(n * (tokens - 1) / found["decode_s"])
        self.first.setdefault(n, []).append(1000 * found["first_s"])
        self.memory_mb = found["memory_mb"]

    def end(self) -> None:
        """Stop the process."""
        assert self.process.stdin is not None
        with suppress(OSError):
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


def begin(name: str, packed: Path) -> Engine | None:
    """Start an engine; None where it does not run here."""
    python = python_of(name)
    if python is None:
        return None
    environment = dict(os.environ)
    if base(name) == "vllm":
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "1"} | vllm_environment(
            python, at=0, threads=cores()
        )
    if name == "ours-torch":
        environment["TOKENROUTER_NATIVE"] = "0"
    script = WORKERS / f"run_{base(name).replace('.', '_')}.py"
    model = model_of(name, packed)
    begun = time.monotonic()
    process = subprocess.Popen(
        [str(python), str(script), str(model), argument_of(name)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("BENCH_STDERR") else subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        answer(name, process, LOAD_S)
        ready = {"seconds": time.monotonic() - begun}
        for n in (1, 2):  # what is made at the first use is made
            ask(name, process, {"requests": n, "prompt": 20, "tokens": 4, "load": WARM + n})
    except EngineError as error:
        say(f"{error}; left out")
        kill_all(process)
        return None
    return Engine(name, process, ready)


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill an engine and what it started: vLLM's workers outlive their parent."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class EngineError(Exception):
    """An engine ended."""


def ask(name: str, process: subprocess.Popen[str], question: dict[str, int]) -> dict[str, Any]:
    """Return the answer of an engine's process; raises EngineError where it gives none."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise EngineError(f"{name} ended") from error
    return answer(name, process, ANSWER_S)


def answer(name: str, process: subprocess.Popen[str], patience_s: float) -> dict[str, Any]:
    """Return the next line that is an answer; engines print other things too."""
    assert process.stdout is not None
    late = threading.Timer(patience_s, kill_all, [process])
    late.start()
    begun = time.monotonic()
    try:
        for line in process.stdout:
            if line.startswith('{"bench"'):
                found: dict[str, Any] = json.loads(line)["bench"]
                return found
    finally:
        late.cancel()
    status = process.wait()
    silent = time.monotonic() - begun >= patience_s
    why = f"said nothing for {patience_s:.0f} s" if silent else f"ended with status {status}"
    raise EngineError(f"{name} {why}; BENCH_STDERR=1 shows what it says")


def agreement(one: Engine, other: Engine) -> float:
    """Return the share of ids that two engines began their answers with alike."""
    same = count = 0
    for place, answers in one.ids.items():
        for mine, theirs in zip(answers, other.ids[place], strict=True):
            alike = itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=True)
            )
            same += sum(1 for _ in alike)
            count += len(mine)
    return same / count


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


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
    by_name = {engine.name: engine for engine in engines}
    if len(engines) == 1:
        return
    head_of_ratios = "\nratio to the best peer of as many bits, or of more: decode, then first token (above 1: ours is faster)"
    print(f"{head_of_ratios}\n{'':14}{head}")
    for name, rivals in RIVALS.items():
        peers = [by_name[rival] for rival in rivals if rival in by_name]
        if name not in by_name or not peers:
            continue
        engine, cells = by_name[name], ""
        for n in sizes:
            best = max(statistics.median(peer.decode[n]) for peer in peers)
            soonest = min(statistics.median(peer.first[n]) for peer in peers)
            decode, first = statistics.median(engine.decode[n]), statistics.median(engine.first[n])
            cells += f"{decode / best:8.2f} {soonest / first:5.2f}"
        print(f"{name:14}{cells}")
    told = [f"{other.name} {100 * agreement(engines[0], other):.0f} %" for other in engines[1:]]
    print(f"\nfirst ids as {engines[0].name} has them: {', '.join(told)}")


if __name__ == "__main__":
    main()
