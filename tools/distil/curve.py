"""Run the demo's two policies over a range of thresholds and measure what each leaves to `small`.

Both models read every token, so a policy only decides whose token is committed. `borrow` asks small
first and takes one token from large where small's entropy is above tau. `pingpong` hands over to
large there, and goes back once large's own entropy is at or below tau.

    python tools/distil/curve.py --gguf MODEL.gguf --student DIR --temperature 0.7
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from evaluate import load_student
from model import Decoder, load_teacher
from prompts import prompts
from sample import batches, choose
from text import STOPS, load_tokenizer
from torch import Tensor


@dataclass
class Outcome:
    """What a policy wrote, over all rows until each row's end."""

    ids: Tensor
    lengths: Tensor
    small_share: float
    teacher_nll: float
    agreement: float
    handoffs: float


def entropy_of(logits: Tensor) -> Tensor:
    """In nats."""
    logs = logits.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)


@torch.inference_mode()
def run(
    policy: str,
    tau: float,
    large: Decoder,
    small: Decoder,
    prompt: Tensor,
    limit: int,
    temperature: float,
    seed: int,
) -> Outcome:
    """Decode a batch of prompts of one length under `policy`."""
    rows, width = prompt.shape
    rng = torch.Generator().manual_seed(seed)
    caches = [model.new_caches(rows, width + limit) for model in (small, large)]
    ids = torch.cat((prompt, torch.zeros(rows, limit, dtype=torch.long)), dim=1)
    lengths = torch.full((rows,), width + limit)
    live = torch.ones(rows, dtype=torch.bool)
    at_large = torch.zeros(rows, dtype=torch.bool)
    by_small, nll, agreed, changes, count, fed = 0, 0.0, 0, 0, 0, prompt
    for step in range(limit):
        start = 0 if step == 0 else width + step - 1
        logits = []
        for model, cache in zip((small, large), caches, strict=True):
            state = model.hidden(fed, cache, start)[:, -1]
            logits.append(state @ model.embedding.T)
        unsure = [entropy_of(each) > tau for each in logits]
        use_large = unsure[0] if policy == "borrow" else at_large | unsure[0]
        picked = torch.where(use_large[:, None], logits[1], logits[0])
        if temperature > 0:
            token = choose(picked, torch.full((rows,), temperature), rng)
        else:
            token = picked.argmax(-1)
        if policy == "pingpong":
            after = use_large & unsure[1]
            changes += ((use_large != at_large) & live).sum() + ((after != use_large) & live).sum()
            at_large = after
        else:
            changes += 2 * (use_large & live).sum()
        logs = logits[1].log_softmax(-1)
        nll -= logs.gather(1, token[:, None])[live].sum().item()
        agreed += ((token == logits[1].argmax(-1)) & live).sum().item()
        by_small += (~use_large & live).sum().item()
        count += live.sum().item()
        ids[:, width + step] = token
        ended = live & torch.isin(token, torch.tensor(STOPS))
        lengths[ended] = width + step + 1
        live = live & ~ended
        if not live.any():
            break
        fed = token[:, None]
    return Outcome(
        ids, lengths, by_small / count, nll / count, agreed / count, 100 * float(changes) / count
    )


def distinct(ids: Tensor, width: int, lengths: Tensor) -> float:
    """The share of 4-grams that are new in their text: low where a model loops."""
    seen = total = 0
    for row, end in zip(ids.tolist(), lengths.tolist(), strict=True):
        grams = [tuple(row[i : i + 4]) for i in range(width, end - 3)]
        seen, total = seen + len(set(grams)), total + len(grams)
    return seen / max(total, 1)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--student", type=Path, required=True)
    parser.add_argument(
        "--taus", type=float, nargs="+", default=[0.0, 1.5, 2.0, 2.5, 3.0, 3.5, 99.0]
    )
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--show", type=int, default=1, help="texts to print for each threshold")
    parser.add_argument("--policies", nargs="+", default=["borrow", "pingpong"])
    args = parser.parse_args()
    large, small = load_teacher(args.gguf), load_student(args.gguf, args.student)
    tokenizer = load_tokenizer(args.gguf)
    asked = prompts(args.seed, 600, held_out=True)
    prompt = batches(args.gguf, asked, args.seed, args.rows)[0]
    print(
        "policy | tau | small's share | teacher NLL | agreement | new 4-grams | hand-offs per 100"
    )
    for policy in args.policies:
        for tau in args.taus:
            out = run(policy, tau, large, small, prompt, args.limit, args.temperature, args.seed)
            fresh = distinct(out.ids, prompt.shape[1], out.lengths)
            print(
                f"{policy} | {tau} | {out.small_share:.3f} | {out.teacher_nll:.3f} | "
                f"{out.agreement:.3f} | {fresh:.3f} | {out.handoffs:.1f}",
                flush=True,
            )
            for row in range(args.show):
                print("   ", repr(tokenizer.decode(out.ids[row, : out.lengths[row]].tolist())))


if __name__ == "__main__":
    main()
