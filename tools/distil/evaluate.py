"""Measure a shipped student against its teacher: agreement, calibration, cost of a step.

python tools/distil/evaluate.py --gguf MODEL.gguf --student DIR --held DIR [--float WEIGHTS]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import torch
from data import Row, pack, read_waves
from export import loaded
from model import Decoder, load_teacher
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional


def load_student(gguf: Path, folder: Path) -> Decoder:
    """The shipped int8 student beside the teacher's embedding."""
    layers = json.loads((folder / "config.json").read_text())["tokenrouter"]["teacher_layers"]
    student = load_teacher(gguf, layers)
    student.load_state_dict(loaded(folder / "student.safetensors", len(layers)), strict=False)
    return student


class Tally:
    """Per position: does the top choice agree, the KL, the student's entropy, its acceptance."""

    def __init__(self) -> None:
        self.columns: list[Tensor] = []

    def add(self, mine: Tensor, theirs: Tensor, head: Tensor) -> None:
        """Measure positions from the final states of both."""
        logs, target = ((s @ head.T).log_softmax(-1) for s in (mine, theirs))
        same = (logs.argmax(-1) == target.argmax(-1)).float()
        kl = functional.kl_div(logs, target, reduction="none", log_target=True).sum(-1)
        entropy = -(logs.exp() * logs).sum(-1)
        overlap = torch.minimum(logs.exp(), target.exp()).sum(-1)
        own = -(target.exp() * target).sum(-1)
        self.columns.append(torch.stack((same, kl, entropy, overlap, own)))

    def table(self) -> Tensor:
        """One column for each position."""
        return torch.cat(self.columns, dim=1)


@torch.inference_mode()
def compare(student: Decoder, rows: list[Row]) -> Tensor:
    """The tally of the student on sampled rows."""
    tally = Tally()
    for begin in range(0, len(rows), 8):
        batch = pack(rows[begin : begin + 8])
        states = student.hidden(batch.ids)[batch.scored]
        for mine, theirs in zip(states.split(512), batch.states.split(512), strict=True):
            tally.add(mine, theirs, student.embedding)
    return tally.table()


def report(name: str, table: Tensor) -> None:
    """One line of means."""
    same, kl, entropy, overlap, own = table.mean(1).tolist()
    print(
        f"{name}: {table.shape[1]} tokens, top-1 agreement {same:.4f}, KL {kl:.4f}, "
        f"overlap {overlap:.4f}, entropy {entropy:.3f} (teacher {own:.3f})"
    )


def by_entropy(table: Tensor) -> None:
    """Whether the student's entropy tells where it disagrees."""
    same, entropy = table[0], table[2]
    print("student entropy | share of tokens | agreement")
    edges = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 99.0]
    for low, high in pairwise(edges):
        inside = (entropy >= low) & (entropy < high)
        if inside.any():
            print(f"{low:.1f}-{high:.1f} | {inside.float().mean():.3f} | {same[inside].mean():.3f}")


@torch.inference_mode()
def step_seconds(model: Decoder, context: int, steps: int) -> float:
    """The median time of one greedy token at batch 1 after `context` tokens, head included."""
    caches = model.new_caches(1, context + steps)
    model.hidden(torch.full((1, context), 1000), caches)
    token, spent = torch.full((1, 1), 1000), []
    for place in range(context, context + steps):
        begin = time.perf_counter()
        state = model.hidden(token, caches, place)[:, -1]
        token = (state @ model.embedding.T).argmax(-1, keepdim=True)
        spent.append(time.perf_counter() - begin)
    return sorted(spent)[len(spent) // 2]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--student", type=Path, required=True)
    parser.add_argument("--held", type=Path, required=True)
    parser.add_argument(
        "--float", type=Path, help="the trainer's weights, to measure the int8 loss"
    )
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = read_waves(args.held)
    student = load_student(args.gguf, args.student)
    table = compare(student, rows)
    report("int8", table)
    by_entropy(table)
    groups: dict[float, list[Row]] = defaultdict(list)
    for row in rows:
        groups[round(row.temperature, 2)].append(row)
    for temperature, group in sorted(groups.items()):
        report(f"text at temperature {temperature}", compare(student, group))
    teacher = load_teacher(args.gguf)
    costs = [step_seconds(model, 128, 64) for model in (teacher, student, teacher, student)]
    large, small = min(costs[::2]), min(costs[1::2])
    print(
        f"step at batch 1: teacher {large * 1e3:.1f} ms, student {small * 1e3:.1f} ms, "
        f"{small / large:.3f}"
    )
    if args.float:
        student.load_state_dict(load_file(args.float), strict=False)
        report("float32", compare(student, rows))


if __name__ == "__main__":
    main()
