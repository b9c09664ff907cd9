"""Run the demo's policies over a range of thresholds and measure what each leaves to `small`.

Both models read every token, so a policy only decides whose token is committed. `borrow N` asks
small first, and where its entropy is above tau large writes N tokens. `ping-pong` hands over to
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
from text import STOPS, chat, load_tokenizer
from torch import Tensor

FOREVER = 1 << 30
POLICIES = {"borrow 1": 1, "borrow 2": 2, "borrow 4": 4, "ping-pong": FOREVER}


@dataclass
class Written:
    """What was written at each step, `[steps, rows]`; `live` is false after a row's end."""

    tokens: Tensor
    live: Tensor
    by_large: Tensor
    handed: Tensor
    nll: Tensor
    agreed: Tensor


def entropy_of(logits: Tensor) -> Tensor:
    """In nats."""
    logs = logits.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)


@torch.inference_mode()
def run(
    models: tuple[Decoder, Decoder],
    prompt: Tensor,
    tau: Tensor,
    turn: int,
    temperature: float,
    limit: int,
    rng: torch.Generator,
) -> Written:
    """Decode prompts of one length, each row under its own tau; large's turn is `turn` tokens."""
    rows, width = prompt.shape
    caches = [model.new_caches(rows, width + limit) for model in models]
    live = torch.ones(rows, dtype=torch.bool)
    left = torch.zeros(rows, dtype=torch.long)  # tokens that are still large's
    fed, steps = prompt, []
    for step in range(limit):
        start = 0 if step == 0 else width + step - 1
        states = [m.hidden(fed, c, start)[:, -1] for m, c in zip(models, caches, strict=True)]
        small, large = (s @ m.embedding.T for s, m in zip(states, models, strict=True))
        handed = (left == 0) & (entropy_of(small) > tau)
        left[handed] = turn
        by_large = left > 0
        logits = torch.where(by_large[:, None], large, small)
        heat = torch.full((rows,), temperature)
        token = choose(logits, heat, rng) if temperature > 0 else logits.argmax(-1)
        nll = -large.log_softmax(-1).gather(1, token[:, None])[:, 0]
        steps.append((token, live, by_large, handed, nll, token == large.argmax(-1)))
        left = (left - 1).clamp_min(0)
        if turn == FOREVER:
            left[entropy_of(large) <= tau] = 0
        live = live & ~torch.isin(token, torch.tensor(STOPS))
        if not live.any():
            break
        fed = token[:, None]
    return Written(*(torch.stack(column) for column in zip(*steps, strict=True)))


def summary(written: Written, rows: slice) -> str:
    """Means over the live steps of some rows."""
    live = written.live[:, rows]
    columns = (written.by_large, written.nll, written.agreed, written.handed)
    large, nll, agreed, handed = (c[:, rows][live].float().mean().item() for c in columns)
    texts = [
        text[own].tolist() for text, own in zip(written.tokens[:, rows].T, live.T, strict=True)
    ]
    fresh = sum(map(distinct, texts)) / len(texts)
    return f"{1 - large:.3f} | {nll:.3f} | {agreed:.3f} | {fresh:.3f} | {100 * handed:.0f}"


def distinct(text: list[int]) -> float:
    """The share of 4-grams that are new in their text: low where a model loops."""
    grams = [tuple(text[i : i + 4]) for i in range(len(text) - 3)]
    return len(set(grams)) / len(grams) if grams else 1.0


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--student", type=Path, required=True)
    parser.add_argument("--taus", type=float, nargs="+", default=[0, 2, 2.5, 3, 3.5, 4, 99])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument(
        "--rows", type=int, default=24, help="prompts, drawn from the held-out ones"
    )
    parser.add_argument("--ask", nargs="+", help="print the answers to these, of one length in ids")
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    models = (load_student(args.gguf, args.student), load_teacher(args.gguf))
    tokenizer = load_tokenizer(args.gguf)
    if args.ask:
        prompt = torch.tensor([tokenizer.encode(chat([each])).ids for each in args.ask])
    else:
        asked = prompts(args.seed, 600, held_out=True)
        prompt = batches(args.gguf, asked, args.seed, args.rows)[0]
    count, taus = len(prompt), torch.tensor(args.taus)
    print("policy | tau | by small | large's NLL | agreement | new 4-grams | hand-overs per 100")
    for policy in args.policies:
        rng = torch.Generator().manual_seed(args.seed)
        written = run(
            models,
            prompt.repeat(len(taus), 1),
            taus.repeat_interleave(count),
            POLICIES[policy],
            args.temperature,
            args.limit,
            rng,
        )
        for place, tau in enumerate(args.taus):
            rows = slice(place * count, (place + 1) * count)
            print(f"{policy} | {tau} | {summary(written, rows)}", flush=True)
            for row in range(rows.start, rows.stop) if args.ask else [rows.start]:
                text = written.tokens[:, row][written.live[:, row]].tolist()
                print("   ", repr(tokenizer.decode(text)), flush=True)


if __name__ == "__main__":
    main()
