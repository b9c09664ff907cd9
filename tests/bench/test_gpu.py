"""The pieces of benchmarks/gpu.py that need no GPU, and the ones that do, over small shapes and in the interpreter."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.models.test_dummy import shape

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


class Stopwatch:
    """In the place of a GPU's events."""

    def ms(self, run):
        begin = time.perf_counter()
        run()
        return 1000 * (time.perf_counter() - begin)


def test_without_a_gpu_it_says_so_in_one_line_and_ends_with_2(monkeypatch, capsys):
    import gpu

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert gpu.main(["--quick"]) == 2
    assert capsys.readouterr().err == (
        "gpu.py: no CUDA device is there (torch.cuda.is_available() is false); nothing was measured\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2.9.0+cu128", (2, 9)), ("3.4.0", (3, 4)), ("2.13.0a0+git1", (2, 13)), ("3.5rc1", (3, 51))],
)
def test_versions_are_compared_as_numbers(text, expected):
    import gpu

    found = gpu.version(text)

    assert found == expected or (text == "3.5rc1" and found > (3, 4))
    assert (found >= gpu.LEAST_TORCH) == (expected >= (2, 9))


def test_the_roofline_is_the_longer_of_bytes_and_flops():
    from gpu_figures import Ceilings, share

    card = Ceilings(bytes_per_s=4e12, flops_per_s=800e12)

    assert share(1.0, 2_000_000_000, 0, card) == pytest.approx(0.5)
    assert share(1.0, 2_000_000_000, 80_000_000_000, card) == pytest.approx(0.5)
    assert share(1.0, 2_000_000_000, 640_000_000_000, card) == pytest.approx(0.8)


def test_a_difference_is_relative_and_nan_is_infinite():
    import gpu

    assert gpu.difference(torch.tensor([4.0, 10.0]), torch.tensor([5.0, 10.0])) == pytest.approx(
        0.1
    )
    assert gpu.difference(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    assert gpu.difference((torch.ones(1), torch.ones(2)), (torch.ones(1), 3 * torch.ones(2))) > 0.6


def test_tables_and_json_hold_what_was_measured(tmp_path):
    from gpu_figures import (
        Ceilings,
        KernelTime,
        Routed,
        StepTime,
        kernel_table,
        routed_table,
        step_table,
        write,
    )

    kernels = [
        KernelTime("rms_norm", "16 x 1024", 1e-3, True, 0.004, 0.008, 0.875),
        KernelTime("greedy", "16 x 9", 1.0, False, 0.5, 0.25, 0.1),
    ]
    steps = [StepTime("qwen3-0.6b", 16, 4, 1024, 6.0, 1.5, 1.0)]
    pair = [Routed(8, 100.0, 150.0, 50.0)]

    write(tmp_path / "f.json", {"card": "none"}, Ceilings(1.0, 2.0), kernels, steps, pair)

    assert kernel_table(kernels).splitlines() == [
        "kernel    size              right      ms  of roofline  against torch",
        "--------  ---------  ------------  ------  -----------  -------------",
        "rms_norm  16 x 1024           yes  0.0040         88 %          2.00x",
        "greedy    16 x 9     NO (1.0e+00)  0.5000         10 %          0.50x",
    ]
    assert step_table(steps).splitlines()[-1].split() == (
        ["qwen3-0.6b", "16", "x", "4", "of", "1024", "6.000", "1.500", "4.00x", "1.50x"]
    )
    assert routed_table(pair).splitlines()[-1].split()[-4:] == ["100", "150", "50", "3.00x"]
    told = json.loads((tmp_path / "f.json").read_text())
    assert told["kernels"][1]["right"] is False
    assert told["routed"][0]["solved_windows"] == 150.0


def test_every_kernel_is_right_and_has_a_peer_over_small_sizes(monkeypatch):
    import gpu
    import gpu_cases as g

    monkeypatch.setattr(g, "VOCABULARY", 1003)
    cpu, wide = torch.device("cpu"), torch.float32
    torch.manual_seed(0)
    made = [
        g.attention(cpu, wide, 2, 64, 1),
        g.attention(cpu, wide, 2, 32, 4),
        g.attention(cpu, wide, 1, 48, 16),
        g.norm(cpu, wide, 3, 96),
        g.add_norm(cpu, wide, 3, 96),
        g.gate(cpu, wide, 3, 48),
        g.write(cpu, wide, 3),
        g.signals(cpu, wide, 2),
        g.every_signal(cpu, wide, 2),
        g.greedy(cpu, wide, 3),
        g.draw(cpu, 3),
        g.numbers(cpu, 5),
        g.head(cpu, wide, 2),
        g.r2r(cpu, wide, 2),
    ]

    for case in made:
        error = gpu.difference((case.checked or case.run)(), case.reference())
        assert error <= case.tolerance, (case.kernel, case.size, error)
        case.replaced()
        assert case.n_bytes > 0
    assert made[0].n_bytes == 2 * 64 * 8 * 128 * 2 * 4


def test_the_route_kernel_of_a_policy_is_checked(tmp_path, monkeypatch):
    import gpu
    from gpu_route import route

    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "cache"))
    small, large = (
        str(shape(tmp_path / name, max_position_embeddings=2048)) for name in ("small", "large")
    )
    torch.manual_seed(0)

    case = route(torch.device("cpu"), small, f"{large}?seed=1", 24, tmp_path)

    (decided, values), expected = case.run(), case.reference()
    assert gpu.difference((decided, values), expected) <= case.tolerance
    assert {int(rule) for rule in decided[:, 0]} == {0, 1, 2, 3}
    assert gpu.difference((decided + 1, values), expected) > case.tolerance


def test_a_wrong_kernel_is_told(monkeypatch):
    import gpu
    import gpu_cases as g

    case = g.norm(torch.device("cpu"), torch.float32, 3, 96)

    assert gpu.difference(case.run() * 1.05, case.reference()) > case.tolerance


def test_steps_are_timed_eagerly_and_captured_over_a_shape(tmp_path):
    import gpu_steps
    from gpu_figures import Ceilings

    path = shape(tmp_path, max_position_embeddings=2048)

    found = list(
        gpu_steps.steps(str(path), torch.device("cpu"), Stopwatch(), Ceilings(1e9, 1e9), quick=True)
    )

    assert [(s.requests, s.tokens) for s in found] == [(1, 1), (16, 1), (16, 4)]
    assert all(s.eager_ms > 0 and s.graph_ms > 0 for s in found)


def test_bytes_of_the_published_shapes_and_what_fits():
    import gpu_steps

    from tokenrouter.models import locate, read_config

    def config(name):
        return read_config(locate(f"dummy:{name}", Path()))

    assert gpu_steps.weight_bytes(config("qwen3-0.6b")) == 2 * 596_049_920
    # The head of the 0.6B is its embedding and is read; that of the 8B is apart from it.
    assert gpu_steps.read_bytes(config("qwen3-0.6b")) == 2 * 596_049_920
    assert gpu_steps.read_bytes(config("qwen3-8b")) == 2 * (8_190_735_360 - 151_936 * 4096)
    assert gpu_steps.shapes(139 << 30, 64) == ["qwen3-0.6b", "qwen3-32b"]
    assert gpu_steps.shapes(48 << 30, 64) == ["qwen3-0.6b", "qwen3-8b"]
    assert gpu_steps.shapes(8 << 30, 64) == ["qwen3-0.6b"]


BARE = """
import sys
class Missing:
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.path[:0] = [{benchmarks!r}, {root!r}, {kernels!r}]
import gpu_cases, gpu_clock, gpu_figures, gpu_routed, gpu_steps, torch
class Once:
    def ms(self, run):
        run()
        return 1.0
card = gpu_figures.Ceilings(1e9, 1e9)
for step in gpu_steps.steps({shape!r}, torch.device("cpu"), Once(), card, quick=True):
    print(step.requests, step.tokens)
"""


def test_all_but_the_pair_needs_torch_and_triton_alone(tmp_path):
    from gpu_routed import NEEDED

    root = BENCHMARKS.parent
    program = BARE.format(
        blocked=[name for name in NEEDED if name not in ("networkx", "jinja2")],  # torch's own
        benchmarks=str(BENCHMARKS),
        root=str(root),
        kernels=str(root / "kernels"),
        shape=str(shape(tmp_path, max_position_embeddings=2048)),
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TOKENROUTER_NATIVE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "1 1\n16 1\n16 4\n", done.stderr[-500:]


def test_speeds_are_medians_by_side_and_clients():
    from gpu_routed import speeds

    def row(side, n, *found):
        return {
            "side": side,
            "level": {"concurrency": n, "rate": None},
            "runs": [{"tokens_per_s": x} for x in found],
        }

    found = speeds({"rows": [row("trc serve", 4, 10, 30, 20), row("baseline", 4, 5)]})

    assert found == {("routed", 4): 20, ("baseline", 4): 5}


def test_a_command_that_fails_is_told_by_its_last_line(tmp_path):
    from gpu_routed import Unmeasured, trc

    with pytest.raises(Unmeasured, match=r"`trc compile` failed: .*nowhere\.route"):
        trc("compile", str(tmp_path / "nowhere.route"))


@pytest.mark.slow
def test_the_pair_is_measured_end_to_end_over_tiny_shapes(tmp_path, monkeypatch):
    import gpu_routed

    monkeypatch.setattr(gpu_routed, "CLIENTS", (1, 4))
    small, large = (
        shape(tmp_path / name, max_position_embeddings=2048) for name in ("small", "large")
    )

    found = gpu_routed.routed(str(small), f"{large}?seed=1", tmp_path, print, quick=True, device="cpu")  # fmt: skip

    assert [r.clients for r in found] == [1, 4]
    assert all(min(r.eager_windows, r.solved_windows, r.baseline) > 0 for r in found)
