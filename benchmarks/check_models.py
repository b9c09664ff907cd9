"""How long a cold `trc check` takes where a policy's models are at hand: not there, seen for the first time, and seen before.

    python benchmarks/check_models.py [--repeat 10]

The pairs: the demo's (a GGUF file, and a directory that shares its tokenizer; left out where it was not fetched), two shapes of
151,936 ids, and two directories written here, with a tokenizer.json of as many. Prints medians of wall-clock and of processor
seconds; the cache is one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tokenrouter.demo.fetch import GGUF, cache_dir

IDS = 151_936
CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": IDS,
    "eos_token_id": 0,
}


def directory(path: Path) -> Path:
    """Write what a check reads of a Hugging Face directory; its weights are named and not there."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    vocab = {f"t{id_}": id_ for id_ in range(IDS)}
    merges = [f"t{id_ // 7} {id_}" for id_ in range(IDS)]
    raw = {
        "added_tokens": [],
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }
    (path / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    header = json.dumps({"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode()
    weights = len(header).to_bytes(8, "little") + header
    (path / "model.safetensors").write_bytes(weights)
    return path


def policy(path: Path, small: str, large: str) -> Path:
    """Write a policy over two models."""
    text = f"""route 1
model small {{ use "{small}" }}
model large {{ use "{large}" }}
policy p {{
  start small
  at small {{ when entropy > 1.5 -> retry large  otherwise -> commit }}
  at large {{ otherwise -> commit then small }}
}}
"""
    path.write_text(text, encoding="utf-8")
    return path


def check(path: Path, cache: Path) -> tuple[float, float]:
    """Return wall-clock and processor seconds of one check."""
    command = [sys.executable, "-m", "tokenrouter.cli", "check", str(path)]
    begin = time.perf_counter()
    child = os.posix_spawn(sys.executable, command, {**os.environ, "TOKENROUTER_CACHE": str(cache)})
    _, status, used = os.wait4(child, 0)
    assert status == 0
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10, help="runs of each (10)")
    repeat = parser.parse_args().repeat
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'pair':<12} {'models':<12} {'wall s':>8} {'cpu s':>8}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        cache = home / "cache"
        cache.mkdir()
        pairs = {
            "shapes": ("dummy:qwen3-0.6b", "dummy:qwen3-8b"),
            "directories": (str(directory(home / "a")), str(directory(home / "b"))),
        }
        if (cache_dir() / GGUF).exists():
            (cache / GGUF).symlink_to(cache_dir() / GGUF)
            pairs = {"demo": ("demo:small", "demo:large"), **pairs}
        time.sleep(3)  # files of a moment ago are not kept

        def row(pair: str, state: str, path: Path) -> None:
            found = []
            for _ in range(repeat):
                if state == "first seen":
                    shutil.rmtree(cache / "facts", ignore_errors=True)
                found.append(check(path, cache))
            wall, work = (statistics.median(values) for values in zip(*found, strict=True))
            print(f"{pair:<12} {state:<12} {wall:>8.2f} {work:>8.2f}", flush=True)

        for pair, uses in pairs.items():
            path = policy(home / "p.route", *uses)
            check(path, cache)  # writes the byte code
            row(pair, "first seen", path)
            row(pair, "seen before", path)
        row("any", "not there", policy(home / "p.route", "no/model", "no/other"))


if __name__ == "__main__":
    main()
