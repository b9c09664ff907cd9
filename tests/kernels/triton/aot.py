"""Compiles every Triton kernel ahead of time, without a GPU or its driver, and says what came of it.

The launchers are called with tensors of shape and dtype only; a launch is taken down instead of made, and then compiled for
each architecture by `triton.compile`. Prints JSON lines, one a kernel. Runs as a process of its own, since the interpreter
is chosen when triton is imported: python tests/kernels/triton/aot.py 80 90 100.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

TYPES = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
}
LAUNCH = {"num_warps", "num_stages", "enable_fp_fusion"}


class Launch:
    """A kernel with the arguments of one launch."""

    def __init__(self, kernel: JITFunction, args: tuple, named: dict) -> None:
        self.kernel = kernel
        self.options = {key: named[key] for key in LAUNCH & named.keys()}
        values = dict(zip(kernel.arg_names, args, strict=False))
        values |= {key: value for key, value in named.items() if key not in LAUNCH}
        assert values.keys() == set(kernel.arg_names), (kernel.__name__, values.keys())
        self.values = {name: values[name] for name in kernel.arg_names}

    def source(self) -> ASTSource:
        fixed = {p.name for p in self.kernel.params if p.is_constexpr}
        signature, constants, attributes = {}, {}, {}
        for at, (name, value) in enumerate(self.values.items()):
            if name in fixed:
                signature[name], constants[name] = "constexpr", value
                continue
            signature[name] = kind(value)
            # As at a launch: pointers and sizes that are multiples of 16 are known to be.
            if isinstance(value, torch.Tensor) or (type(value) is int and value % 16 == 0):
                attributes[(at,)] = [["tt.divisibility", 16]]
        return ASTSource(self.kernel, signature, constants, attributes)


def kind(value: object) -> str:
    """Return triton's name of an argument's type."""
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32"
    assert isinstance(value, float), value
    return "fp32"


def taken_down(launches: list[Launch]) -> None:
    """Make every launch from here on an entry of a list."""

    def record(kernel: JITFunction, _grid: object):
        return lambda *args, **named: launches.append(Launch(kernel, args, named))

    JITFunction.__getitem__ = record


def compiled(launch: Launch, architecture: int) -> dict:
    """Compile for one architecture and return what the code needs."""
    target = GPUTarget("cuda", architecture, 32)
    found = triton.compile(launch.source(), target=target, options=launch.options)
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(found.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    figures = {key.lower(): int(n) for key, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return {
        "kernel": launch.kernel.__name__,
        "architecture": architecture,
        "shared": found.metadata.shared,
        "dot": bool(re.search(r"\bmma\.sync|\bwgmma\.mma|\btcgen05\.mma", found.asm["ptx"])),
        **figures,
    }


def main(architectures: list[int]) -> None:
    launches: list[Launch] = []
    taken_down(launches)
    from tests.kernels.triton import launches as shapes

    for name, launch in shapes.ALL.items():
        del launches[:]
        launch()
        assert launches, name
        for each in launches:
            for architecture in architectures:
                print(json.dumps({"case": name, **compiled(each, architecture)}), flush=True)


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]])
