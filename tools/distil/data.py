"""Read sampled waves back as rows, and pack rows of like length into batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """A prompt with its sampled continuation; `states[i]` chose token `prompt + i`."""

    ids: Tensor
    prompt: int
    states: Tensor
    temperature: float


@dataclass(frozen=True)
class Batch:
    """Right-padded rows; `scored` marks the positions whose teacher state is in `states`."""

    ids: Tensor
    scored: Tensor
    states: Tensor


def read_wave(path: Path) -> list[Row]:
    """The rows of one file."""
    with safe_open(path, framework="pt") as wave:
        prompt = int(wave.metadata()["prompt"])
        ids = wave.get_tensor("ids").long()
        lengths = wave.get_tensor("lengths").tolist()
        temperatures = wave.get_tensor("temperature").tolist()
        states = wave.get_tensor("states").split([n - prompt for n in lengths])
    parts = zip(ids, lengths, states, temperatures, strict=True)
    return [Row(i[:n], prompt, s, t) for i, n, s, t in parts]


def read_waves(folder: Path) -> list[Row]:
    """The rows of all files in a folder, in the order of their names."""
    return [row for path in sorted(folder.glob("*.safetensors")) for row in read_wave(path)]


def pack(rows: list[Row]) -> Batch:
    """The last token of a row predicts nothing that was sampled, so it is not fed."""
    width = max(len(row.ids) for row in rows) - 1
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    scored = torch.zeros(len(rows), width, dtype=torch.bool)
    for place, row in enumerate(rows):
        end = len(row.ids) - 1
        ids[place, :end] = row.ids[:end]
        scored[place, row.prompt - 1 : end] = True
    return Batch(ids, scored, torch.cat([row.states for row in rows]).float())


def epoch(rows: list[Row], tokens: int, seed: int) -> Iterator[Batch]:
    """All rows once, in batches of at most `tokens` positions, padding kept low by sorted pools."""
    rng = random.Random(seed)
    order = rng.sample(rows, len(rows))
    for begin in range(0, len(order), 512):
        pool = sorted(order[begin : begin + 512], key=lambda row: len(row.ids))
        groups: list[list[Row]] = [[]]
        for row in pool:
            if (len(groups[-1]) + 1) * len(row.ids) > tokens:
                groups.append([])
            groups[-1].append(row)
        rng.shuffle(groups)
        yield from map(pack, groups)
