"""Every kernel, compiled for three generations of GPUs on a machine that has none; in the gate for the middle one."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.kernels.triton.launches import ALL

ROOT = Path(__file__).parents[3]
GATE = 90
ARCHITECTURES = (
    pytest.param(80, marks=pytest.mark.slow),
    GATE,
    pytest.param(100, marks=pytest.mark.slow),
)
SHARED = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}  # bytes a program may have
DOTS = ("decode_attention_kernel", "prefill_attention_kernel", "affine_kernel")
# Bytes of the stack, where registers did not suffice. Float32 has no tensor cores here, and is for checks.
SPILLS = {
    ("prefill_attention_kernel", 80): 72,  # by triton 3.5; 64 by 3.7
    ("sample_kernel", 90): 64,  # float64 sums, 16 thresholds a pass; it runs once a step
    ("sample_kernel", 100): 16,
}
SPILLS_FLOAT32 = 16


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return what came of every kernel for an architecture."""

    @cache
    def kernels(architecture):
        home = tmp_path_factory.mktemp("compiled")
        env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        env |= {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
            "TRITON_CACHE_DIR": str(home / "triton"),
            "TOKENROUTER_CACHE": str(home / "tokenrouter"),
        }
        return subprocess.run(
            [sys.executable, ROOT / "tests/kernels/triton/aot.py", str(architecture)],
            env=env,
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )

    def found(architecture):
        done = kernels(architecture)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", ALL)
def test_a_kernel_compiles_within_its_bounds(compiled, case, architecture):
    found = [c for c in compiled(architecture) if c["case"] == case]

    assert found
    for kernel in found:
        name = kernel["kernel"]
        wide = "fp32" in case and name in DOTS
        bound = SPILLS_FLOAT32 if wide else SPILLS.get((name, architecture), 0)
        assert kernel["stack"] + kernel["local"] <= bound
        assert kernel["shared"] <= SHARED[architecture]
        if name in DOTS and not wide:
            assert kernel["dot"], "no tensor-core instruction"


def test_every_kernel_of_the_package_is_compiled(compiled):
    package = ROOT / "kernels/tokenrouter_kernels/triton"
    written = {
        line.split("(")[0].removeprefix("def ")
        for file in package.glob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("def ") and line.split("(")[0].endswith("_kernel")
    }

    assert written | {"route"} == {c["kernel"] for c in compiled(GATE)}
