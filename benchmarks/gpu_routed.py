"""The routed pair end to end, by this project's own commands: `trc compile`, `trc profile`, `trc bench --baseline`.

The rest of `gpu.py` needs torch and triton alone; this part starts servers, and they need what pyproject.toml lists.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_figures import Routed

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (
    "msgspec", "networkx", "numpy", "scipy", "rfc8785", "transformers", "tokenizers", "safetensors", "gguf", "jinja2",
    "zmq", "fastapi", "uvicorn", "httpx", "llguidance",
)  # fmt: skip
CLIENTS = (1, 4, 8, 16)
KV_BUDGET = "8G"  # of the profile; servers take what is free
POLICY = """route 1
model small {{ use "dummy:{small}"  dtype bfloat16  cost 1 }}
model large {{ use "dummy:{large}"  dtype bfloat16  cost 10 }}
policy pair {{
  start small
  at small {{
    when chance < 0.35 -> borrow large for 1
    otherwise          -> commit
  }}
}}
"""


class Unmeasured(Exception):  # noqa: N818 - reads as what it says
    """Why there is no figure, in one line."""


def missing() -> list[str]:
    """Return the modules that the servers need and that are not there."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def routed(
    small: str,
    large: str,
    folder: Path,
    say: Callable[[str], None],
    *,
    quick: bool,
    device: str = "cuda",
) -> list[Routed]:
    """Measure the pair: tokens/s with windows of 1, with solved windows, and of the baseline; raises Unmeasured."""
    policy = folder / "pair.route"
    policy.write_text(POLICY.format(small=small, large=large), encoding="utf-8")
    plain, profile, solved = (folder / n for n in ("plain.json", "profile.json", "solved.json"))
    compiled = ("compile", str(policy), "--max-active", "16", "--kv-budget", KV_BUDGET)
    trc(*compiled, "-o", str(plain))
    say("profiling the pair")
    quickly = ["--quick"] if quick else []
    trc("profile", str(plain), "--device", device, *quickly, "-o", str(profile))
    trc(*compiled, "--profile", str(profile), "-o", str(solved))
    say("serving the pair: windows of 1, and the baseline")
    eager = bench(plain, folder / "eager.json", baseline=True, quick=quick)
    say("serving the pair: solved windows")
    windows = bench(solved, folder / "solved-figures.json", baseline=False, quick=quick)
    return [
        Routed(n, eager["routed", n], windows["routed", n], eager["baseline", n]) for n in CLIENTS
    ]


def bench(plan: Path, out: Path, *, baseline: bool, quick: bool) -> dict[tuple[str, int], float]:
    """Return tokens/s by side and number of clients."""
    trc(
        "bench",
        str(plan),
        "--concurrency",
        ",".join(map(str, CLIENTS)),
        "--output-tokens",
        "64" if quick else "128",
        "--requests",
        "16" if quick else "48",
        "--json",
        str(out),
        *(["--baseline"] if baseline else []),
    )
    return speeds(json.loads(out.read_text(encoding="utf-8")))


def speeds(result: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Return the median tokens/s of each side and number of clients in what `trc bench --json` wrote."""
    return {
        (
            "baseline" if row["side"] == "baseline" else "routed",
            row["level"]["concurrency"],
        ): statistics.median(run["tokens_per_s"] for run in row["runs"])
        for row in result["rows"]
    }


def trc(*arguments: str) -> None:
    """Run one of this project's commands; raises Unmeasured with its last line."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tokenrouter.cli", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it says nothing"]
        raise Unmeasured(f"`trc {arguments[0]}` failed: {lines[-1]}")
