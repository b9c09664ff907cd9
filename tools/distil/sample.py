"""Sample text from the teacher, keeping its final hidden state at every sampled position.

The hidden state (bfloat16) gives the teacher's whole distribution by one product with the head, so
training never runs the teacher again. Rows of a wave have prompts of one length and start together:
no mask is needed, and rows that ended are squeezed out of the wave.

    python tools/distil/sample.py --gguf MODEL.gguf --out DIR --seed 1 --seconds 1800
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from pathlib import Path

import torch
from model import SHAPE, Decoder, load_teacher
from prompts import prompts
from safetensors.torch import save_file
from text import STOPS, load_tokenizer
from torch import Tensor

TEMPERATURES = (0.4, 0.6, 0.8, 0.8)
TOP_P = 0.95
TOP_K = 64


def choose(logits: Tensor, temperature: Tensor, rng: torch.Generator) -> Tensor:
    """One token a row: the 64 likeliest, tempered, cut to their nucleus."""
    best, ids = logits.topk(TOP_K)
    probs = (best / temperature[:, None]).softmax(-1)
    probs[probs.cumsum(-1) - probs > TOP_P] = 0
    return ids.gather(1, torch.multinomial(probs, 1, generator=rng))[:, 0]


class Wave:
    """A batch of prompts of one length, decoded together."""

    def __init__(self, teacher: Decoder, ids: Tensor, limit: int, rng: torch.Generator) -> None:
        rows, self.prompt = ids.shape
        self.teacher, self.limit, self.rng = teacher, limit, rng
        self.ids = torch.cat((ids, torch.zeros(rows, limit, dtype=torch.long)), dim=1)
        self.states = torch.zeros(rows, limit, SHAPE.hidden, dtype=torch.bfloat16)
        self.lengths = torch.full((rows,), self.prompt)
        pick = torch.randint(len(TEMPERATURES), (rows,), generator=rng)
        self.temperature = torch.tensor(TEMPERATURES)[pick]

    @torch.inference_mode()
    def run(self) -> None:
        """Decode every row to its end or to the limit; each state belongs to the token after it."""
        rows = torch.arange(len(self.ids))
        live = torch.ones(len(rows), dtype=torch.bool)
        caches = self.teacher.new_caches(len(rows), self.prompt + self.limit)
        fed = self.ids[:, : self.prompt]
        for step in range(self.limit):
            position = self.prompt + step
            state = self.teacher.hidden(fed, caches, 0 if step == 0 else position - 1)[:, -1]
            token = choose(state @ self.teacher.embedding.T, self.temperature[rows], self.rng)
            self.states[rows, step] = state.bfloat16()
            self.ids[rows, position] = token
            self.lengths[rows[live]] = position + 1
            live = live & ~torch.isin(token, torch.tensor(STOPS))
            if live.sum() < len(self.ids) // 5:  # the last few rows cost as much as many: cut them
                return
            if (~live).sum() > len(rows) // 8:
                for cache in caches:
                    cache.keys, cache.values = cache.keys[live], cache.values[live]
                rows, token, live = rows[live], token[live], live[live]
            fed = token[:, None]

    def save(self, path: Path) -> int:
        """Write ids, lengths and the states of sampled tokens, rows joined; returns their number."""
        counts = self.lengths - self.prompt
        states = torch.cat([s[:n] for s, n in zip(self.states, counts.tolist(), strict=True)])
        tensors = {
            "ids": self.ids.to(torch.uint16),
            "lengths": self.lengths,
            "temperature": self.temperature,
            "states": states,
        }
        partial = path.with_suffix(".part")  # training may be reading the folder
        save_file(tensors, partial, {"prompt": str(self.prompt)})
        partial.rename(path)
        return len(states)


def batches(gguf: Path, prompts: list[str], seed: int, rows: int) -> list[Tensor]:
    """Prompts as ids, grouped by length into batches of `rows`, in a seeded order."""
    tokenizer = load_tokenizer(gguf)
    groups: dict[int, list[list[int]]] = defaultdict(list)
    for encoded in tokenizer.encode_batch(prompts):
        groups[len(encoded.ids)].append(encoded.ids)
    found = [
        torch.tensor(group[i : i + rows])
        for group in groups.values()
        for i in range(0, len(group) - rows + 1, rows)
    ]
    random.Random(seed).shuffle(found)
    return found


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--held-out", action="store_true", help="prompts kept from training")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    teacher = load_teacher(args.gguf)
    rng = torch.Generator().manual_seed(args.seed)
    begin, total = time.monotonic(), 0
    asked = prompts(args.seed, args.prompts, args.held_out)
    for number, ids in enumerate(batches(args.gguf, asked, args.seed, args.rows)):
        wave = Wave(teacher, ids, args.limit, rng)
        wave.run()
        total += wave.save(args.out / f"wave-{args.seed}-{number:04}.safetensors")
        spent = time.monotonic() - begin
        print(f"wave {number}: {total} tokens, {total / spent:.0f} a second", flush=True)
        if spent > args.seconds:
            return


if __name__ == "__main__":
    main()
