"""Everything that only a GPU can show, in one command: are the kernels right there, how fast are they, what do graphs and routing give.

    PYTHONPATH=. python benchmarks/gpu.py [--quick] [--json FILE]

1. every Triton kernel against its reference in torch, on the device
2. each of them timed: against the roofline (ceilings are measured first) and against the torch operation that it replaces
3. decode steps of real shapes with random weights: eagerly, and as captured graphs
4. the routed pair end to end: windows of 1, solved windows, and one server a model with a dispatcher

Needs torch >= 2.9, triton >= 3.4 and this repository; the generated route kernel of part 1 and all of part 4 also need what
pyproject.toml lists, and are left out, with a line that says so, where that is missing. Exit status: 0, 1 where a kernel is wrong, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "kernels")]

import gpu_figures as figures  # noqa: E402
import torch  # noqa: E402

LEAST_TORCH, LEAST_TRITON = (2, 9), (3, 4)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes, fewer repeats")
    parser.add_argument(
        "--json", type=Path, default=Path("gpu.json"), metavar="FILE", help="(%(default)s)"
    )
    args = parser.parse_args(argv)
    problem = obstacle()
    if problem:
        print(f"gpu.py: {problem}", file=sys.stderr)
        return 2
    device = torch.device("cuda:0")
    torch.cuda.set_device(device)
    return measure(device, args.json, quick=args.quick)


def obstacle() -> str | None:
    """Return why nothing can be measured here; None where it can."""
    if not torch.cuda.is_available():
        return "no CUDA device is there (torch.cuda.is_available() is false); nothing was measured"
    if version(torch.__version__) < LEAST_TORCH:
        return f"torch {torch.__version__} is too old: 2.9 or later is needed"
    try:
        import triton
    except ImportError:
        return "triton is missing: pip install 'triton>=3.4'"
    if version(triton.__version__) < LEAST_TRITON:
        return f"triton {triton.__version__} is too old: 3.4 or later is needed"
    return None


def version(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version."""
    major, minor = text.split("+")[0].split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()))


@torch.inference_mode()
def measure(device: torch.device, out: Path, *, quick: bool) -> int:
    """Measure everything, print tables last, write the figures."""
    from gpu_clock import Clock, ceilings

    clock = Clock(device, 10 if quick else 30)
    found = ceilings(device, clock, torch.bfloat16)
    say(f"copy {found.bytes_per_s / 1e12:.2f} TB/s, product {found.flops_per_s / 1e12:.0f} TFLOP/s")
    kernels = kernel_times(device, clock, found, quick=quick)
    steps = step_times(device, clock, found, quick=quick)
    pair = routed_pair(steps, quick=quick)
    figures.write(out, about(device), found, kernels, steps, pair)
    print()
    for part in (
        figures.kernel_table(kernels),
        figures.step_table(steps),
        figures.routed_table(pair) if pair else "",
    ):
        if part:
            print(part, end="\n\n")
    print(f"figures: {out}")
    wrong = [f"{t.kernel} {t.size}" for t in kernels if not t.right]
    if wrong:
        print(f"gpu.py: wrong on this device: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def kernel_times(device, clock, ceilings, *, quick):  # noqa: ANN001, ANN201
    """Return each kernel's error and times."""
    from gpu_cases import cases

    found = []
    for case in chain(cases(device, torch.bfloat16, quick=quick), route_cases(device)):
        error = difference((case.checked or case.run)(), case.reference())
        ms = clock.ms(case.run)
        time_ = figures.KernelTime(
            kernel=case.kernel,
            size=case.size,
            error=error,
            right=error <= case.tolerance,
            ms=ms,
            replaced_ms=clock.ms(case.replaced),
            roofline=figures.share(ms, case.n_bytes, case.flops, ceilings),
        )
        say(f"{case.kernel} {case.size}: {ms:.4f} ms, {100 * time_.roofline:.0f} % of the roofline")
        found.append(time_)
        torch.cuda.empty_cache()
    return found


def route_cases(device):  # noqa: ANN001, ANN201
    """Yield the generated kernel of a policy; nothing, with a line that says why, where no plan can be read."""
    from gpu_routed import missing

    lacking = missing()
    if lacking:
        say(f"the route kernel is left out: it needs {', '.join(lacking)} (`pip install .` here)")
        return
    from gpu_route import route

    with tempfile.TemporaryDirectory() as folder:
        yield route(device, "qwen3-0.6b", "qwen3-1.7b", 16, Path(folder))


def difference(got: object, expected: object) -> float:
    """Return the largest difference of results, relative to the largest of what is expected."""
    pairs = [(got, expected)] if isinstance(got, torch.Tensor) else list(zip(got, expected, strict=True))  # type: ignore[call-overload]  # fmt: skip
    worst = 0.0
    for a, b in pairs:
        scale = max(float(b.double().abs().max()), 1e-9)
        gap = float((a.double() - b.double()).abs().max())
        worst = max(worst, gap / scale if gap == gap else float("inf"))
    return worst


def step_times(device, clock, ceilings, *, quick):  # noqa: ANN001, ANN201
    """Return the steps of the shapes that fit."""
    from gpu_steps import shapes, steps

    found = []
    free = torch.cuda.mem_get_info(device)[0]
    for name in shapes(free, 64):
        say(f"{name}: drawing weights")
        for step in steps(name, device, clock, ceilings, quick=quick):
            say(
                f"{name}, {step.requests} x {step.tokens}: {step.eager_ms:.2f} ms eagerly, {step.graph_ms:.2f} as a graph"
            )
            found.append(step)
        torch.cuda.empty_cache()
    return found


def routed_pair(steps, *, quick):  # noqa: ANN001, ANN201
    """Return the pair's figures; none, with a line that says why, where it cannot be served here."""
    from gpu_routed import Unmeasured, missing, routed

    lacking = missing()
    if lacking:
        say(f"the routed pair is left out: it needs {', '.join(lacking)} (`pip install .` here)")
        return []
    large = next((s.shape for s in reversed(steps) if s.shape != "qwen3-0.6b"), "qwen3-1.7b")
    with tempfile.TemporaryDirectory() as folder:
        try:
            return routed("qwen3-0.6b", large, Path(folder), say, quick=quick)
        except Unmeasured as error:
            say(f"the routed pair is left out: {error}")
            return []


def about(device: torch.device) -> dict[str, str]:
    """Return what the figures hold for."""
    import triton

    return {
        "card": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def say(line: str) -> None:
    """Tell how far it is, beside the tables."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
