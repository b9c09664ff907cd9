"""How long until something can be asked: `trc serve` on the demo pair until it is ready, and `trc check` on its policy.

    python benchmarks/startup.py [--repeat 5] [--runs warm cold first]

Warm: another start on a machine that has just done the same. Cold: nothing of Python, torch, this package and the models is in the
page cache, as after a restart of the machine (what is there is dropped file by file, which needs no rights; pages that
another process maps stay). First: warm, but the cache folder is empty but for the model, so kernels are compiled and models looked at as
once a machine. Ready is when the line with the URL is printed: all models are loaded. First token: until a request of 20
tokens, sent then, has it.

Prints medians and the spread; needs a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenrouter import demo
from tokenrouter.bench.servers import Server
from tokenrouter.compiler.compile import compile_policy
from tokenrouter.plan.io import write

POLICY = Path(__file__).resolve().parents[1] / "examples" / "demo.route"
RUNS = ("warm", "cold", "first")
VARIABLE = "TOKENROUTER_CACHE"
SERVE_S, CHECK_S = 6.0, 0.4  # goals
PROMPT = list(range(1000, 1020))
T = TypeVar("T")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, metavar="R", help="(%(default)s)")
    parser.add_argument("--dtype", nargs="+", default=["float32"], help="of the models")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS, help="(all)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plan = Path(directory) / "plan.json"
        write(compile_policy(POLICY), plan)
        print(f"{'':30}{'median s':>10}{'lowest':>9}{'highest':>9}{'goal':>7}")
        check(None)
        show("trc check, warm", [check(None) for _ in range(args.repeat)], CHECK_S)
        show("trc check, cold", [cold(check) for _ in range(args.repeat)], CHECK_S)
        for dtype in args.dtype:

            def start(cache: Path | None, dtype: str = dtype) -> tuple[float, float]:
                return serve(plan, ["--dtype", dtype], cache)

            start(None)
            once = {
                "warm": lambda start=start: start(None),
                "cold": lambda start=start: cold(start),
                "first": lambda start=start: start(emptied(Path(directory))),
            }
            for name in args.runs:
                found = [once[name]() for _ in range(args.repeat)]
                show(f"trc serve, {dtype}, {name}", [ready for ready, _ in found], SERVE_S)
                show("  its first token", [first for _, first in found], None)


def check(cache: Path | None) -> float:
    """Return the seconds of `trc check` from a new process."""
    begun = time.perf_counter()
    command = [sys.executable, "-P", "-m", "tokenrouter.cli", "check", str(POLICY)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def serve(plan: Path, options: list[str], cache: Path | None) -> tuple[float, float]:
    """Return the seconds until a server is ready, and until the first token of its first request."""
    with environment(cache):
        begun = time.perf_counter()
        server = Server(plan, options, "the demo's server")
    try:
        url = server.url(120)
        ready = time.perf_counter() - begun
        body = msgspec.json.encode({"prompt": PROMPT, "max_tokens": 1})
        kind = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{url}/completions", body, kind)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            answer.read()
        return ready, time.perf_counter() - begun
    finally:
        server.close()


@contextlib.contextmanager
def environment(cache: Path | None) -> Iterator[None]:
    """Let what is started now have a cache of its own."""
    before = os.environ.get(VARIABLE)
    if cache is not None:
        os.environ[VARIABLE] = str(cache)
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        elif cache is not None:
            del os.environ[VARIABLE]


def emptied(where: Path) -> Path:
    """Return a new cache that holds the demo's large model and nothing else."""
    cache = Path(tempfile.mkdtemp(dir=where))
    teacher = demo.teacher_path()
    (cache / teacher.name).symlink_to(teacher)
    return cache


def cold(run: Callable[[Path | None], T]) -> T:
    """Run once with nothing in the page cache that it reads from files."""
    places = [Path(sys.prefix), Path(sys.base_prefix) / "lib", demo.teacher_path().parent]
    places.append(Path(demo.__file__).parents[1])
    for place in places:
        for directory, _, files in os.walk(place):
            if "peers-" not in directory and "bench" not in directory:
                for name in files:
                    drop(os.path.join(directory, name))
    return run(None)


def drop(path: str) -> None:
    """Let go of what the page cache holds of a file."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return  # a link to nowhere
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def show(name: str, seconds: Sequence[float], goal: float | None) -> None:
    """Print one line."""
    middle, told = statistics.median(seconds), "" if goal is None else f"{goal:7.1f}"
    print(f"{name:30}{middle:10.2f}{min(seconds):9.2f}{max(seconds):9.2f}{told}", flush=True)


if __name__ == "__main__":
    main()
