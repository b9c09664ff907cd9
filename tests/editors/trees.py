"""The tree-sitter grammar, compiled by the C compiler of this machine."""

import ctypes
import shutil
import subprocess
from pathlib import Path

from tree_sitter import Language

ROOT = Path(__file__).parents[2]
GRAMMAR = ROOT / "editors/tree-sitter-route"


def compiled(folder):
    """Compile the parser as editors do; return the library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "the tests compile a parser with `cc`: install a C compiler"
    library = folder / "route.so"
    sources = [GRAMMAR / "src/parser.c", GRAMMAR / "src/scanner.c"]
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-std=c11", "-Wall", "-Werror", "-I", GRAMMAR / "src", "-o", library, *sources],
        check=True,
    )  # fmt: skip
    return library


def language(library):
    """Load what was compiled."""
    make = ctypes.CDLL(str(library)).tree_sitter_route
    make.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return Language(capsule(make(), b"tree_sitter.Language", None))
