"""Train the heads of examples/r2r.route and examples/citer.route on the demo pair, and say what they are worth.

Small reads text that large sampled, as tools/distil/sample.py wrote it down with large's final states. At every sampled position small's
likeliest token is the candidate; the label is whether large's likeliest token is another one. Both heads are trained on that (binary
cross-entropy) and compared with small's entropy on prompts that neither has seen.

    python tools/heads/train.py --data work/data --held work/held      # of tools/distil/sample.py

writes examples/heads/*.safetensors and tools/heads/CARD.md.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from tokenrouter.models import locate
from tokenrouter.runtime.model import ExtendBatch, Extension
from tokenrouter.runtime.model.head import HeadInputs, load_head
from tokenrouter.runtime.model.load import load

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools/distil"))
from data import read_waves  # noqa: E402

PAGE, TOP = 16, 100


@dataclass
class Steps:
    """What small says at each position, and whether large would write another token."""

    hidden: Tensor  # [N, H]
    embedding: Tensor  # [N, H] of the candidate
    top: Tensor  # [N, 100] raw logits, descending
    entropy: Tensor  # [N]
    differs: Tensor  # [N] 0 or 1


@torch.inference_mode()
def collect(folder: Path, positions: int, seed: int) -> Steps:
    """Let small read rows of a folder, in a seeded order, until there are enough positions."""
    rows = read_waves(folder)
    random.Random(seed).shuffle(rows)
    small = load(locate("demo:small", Path()), "float32")
    parts: list[tuple[Tensor, ...]] = []
    count = 0
    for row in rows:
        if count >= positions:
            break
        ids = row.ids[:-1].tolist()  # the last token predicts nothing that was sampled
        pages = -(-len(ids) // PAGE)
        cache = small.new_cache(pages, PAGE)
        batch = ExtendBatch.of([Extension(ids, 0, range(pages), len(row.states))], PAGE)
        logits, hidden, *_ = small.extend(batch, cache, hidden=True)
        assert hidden is not None
        candidate = logits.argmax(-1)
        entropy = torch.distributions.Categorical(logits=logits, validate_args=False).entropy()
        written = (row.states.float() @ small.embedding.T).argmax(-1)
        differs = (candidate != written).float()
        parts.append((hidden, small.embed(candidate), logits.topk(TOP).values, entropy, differs))
        if len(parts) % 20 == 0:
            print(f"{count + len(candidate)} positions", flush=True)
        count += len(candidate)
    return Steps(*(torch.cat(column) for column in zip(*parts, strict=True)))


class Eased:
    """Inputs of mean 0 and spread 1, to train on; a linear map, which the first layer takes over afterwards.

    Of logits, the largest and its distances to the others: what matters is how far apart they are.
    """

    def __init__(self, x: Tensor, *, gaps: bool = False) -> None:
        self.mix = torch.eye(x.shape[1])
        if gaps:
            self.mix = -self.mix
            self.mix[:, 0] = 1.0
        x = x @ self.mix.T
        self.mean, self.spread = x.mean(0), x.std(0) + 1e-6

    def __call__(self, x: Tensor) -> Tensor:
        """Ease some rows."""
        return (x @ self.mix.T - self.mean) / self.spread

    def folded(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight on plain inputs, and what to add to the bias."""
        scaled = weight / self.spread
        return scaled @ self.mix, -scaled @ self.mean


class R2R(nn.Module):
    """The form of R2R's router, small: the sizes are those of the shipped file."""

    def __init__(self, steps: Steps, width: int = 48) -> None:
        super().__init__()
        self.hidden, self.embedding = Eased(steps.hidden), Eased(steps.embedding)
        self.top = Eased(steps.top, gaps=True)
        hidden = steps.hidden.shape[1]
        self.parts = nn.ModuleDict(
            {
                "logits": nn.Linear(TOP, hidden),
                "combine": nn.Linear(3 * hidden, width),
                "input": nn.Linear(width, width),
                "blocks_0_norm": nn.LayerNorm(width),
                "blocks_0_up": nn.Linear(width, 4 * width),
                "blocks_0_down": nn.Linear(4 * width, width),
                "output_norm": nn.LayerNorm(width),
                "output": nn.Linear(width, 1),
            }
        )

    def forward(self, steps: Steps) -> Tensor:
        """Log odds that large would write another token."""
        p = self.parts
        drop = functional.dropout
        token = (self.hidden(steps.hidden), self.embedding(steps.embedding))
        x = torch.cat((*token, p["logits"](self.top(steps.top))), -1)
        x = p["input"](p["combine"](drop(x, 0.5, self.training)))
        inner = functional.gelu(p["blocks_0_up"](p["blocks_0_norm"](x)))
        x = x + p["blocks_0_down"](drop(inner, 0.2, self.training))
        return p["output"](p["output_norm"](x))[:, 0]

    def tensors(self) -> dict[str, Tensor]:
        """By the names of a head file."""
        found = {name[6:].replace("_", "."): value for name, value in self.state_dict().items()}
        found["logits.weight"], more = self.top.folded(found["logits.weight"])
        found["logits.bias"] = found["logits.bias"] + more
        hidden, embedding, rest = found["combine.weight"].chunk(3, 1)
        (hidden, more), (embedding, most) = (
            self.hidden.folded(hidden),
            self.embedding.folded(embedding),
        )
        found["combine.weight"] = torch.cat((hidden, embedding, rest), 1)
        found["combine.bias"] = found["combine.bias"] + more + most
        return found


class Citer(nn.Module):
    """The form of CITER's router, small: log odds that small's token may stay."""

    def __init__(self, steps: Steps, width: int = 96) -> None:
        super().__init__()
        self.hidden = Eased(steps.hidden)
        hidden = steps.hidden.shape[1]
        self.layers = nn.ModuleList(
            [nn.Linear(hidden, width), nn.Linear(width, width // 2), nn.Linear(width // 2, 1)]
        )

    def forward(self, steps: Steps) -> Tensor:
        """Log odds that large would write the same token."""
        x = functional.dropout(self.hidden(steps.hidden), 0.5, self.training)
        x = functional.dropout(self.layers[0](x).relu(), 0.2, self.training)
        return self.layers[2](self.layers[1](x))[:, 0]

    def tensors(self) -> dict[str, Tensor]:
        """By the names of a head file."""
        found = dict(self.state_dict())
        found["layers.0.weight"], more = self.hidden.folded(found["layers.0.weight"])
        found["layers.0.bias"] = found["layers.0.bias"] + more
        return found


def kept(folder: Path | None, name: str, make: Callable[[], Steps]) -> Steps:
    """Read steps from a folder, or make them and keep them there."""
    path = None if folder is None else folder / f"{name}.safetensors"
    if path is not None and path.is_file():
        return Steps(**load_file(path))
    steps = make()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(vars(steps), path)
    return steps


def some(steps: Steps, at: Tensor) -> Steps:
    """Some positions."""
    return Steps(*(getattr(steps, name)[at] for name in Steps.__dataclass_fields__))


def train(module: nn.Module, steps: Steps, labels: Tensor, epochs: int, seed: int) -> None:
    """Fit a head, its rate falling to zero."""
    rng = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.05)
    count = epochs * (-(-len(labels) // 256))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, count)
    module.train()
    for epoch in range(epochs):
        loss = torch.zeros(())
        for at in torch.randperm(len(labels), generator=rng).split(256):
            loss = functional.binary_cross_entropy_with_logits(module(some(steps, at)), labels[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(
            f"epoch {epoch + 1} of {epochs}: loss {loss.item():.3f} in its last batch", flush=True
        )
    module.eval()


def auc(score: Tensor, label: Tensor) -> float:
    """The chance that a position with the label scores above one without; ties count half."""
    values, place = score.double().unique(return_inverse=True)
    positive = torch.zeros(len(values)).double().index_add_(0, place, label.double())
    negative = torch.zeros(len(values)).double().index_add_(0, place, 1 - label.double())
    below = negative.cumsum(0) - negative
    return float((positive * (below + negative / 2)).sum() / (positive.sum() * negative.sum()))


def ask(path: Path, steps: Steps) -> Tensor:
    """What the saved head says, as the runtime computes it."""
    return load_head(path)(HeadInputs(steps.hidden, steps.top, None, steps.embedding))


def caught(score: Tensor, label: Tensor, share: float) -> float:
    """The share of the positions with the label among the `share` that score highest."""
    kept = score.argsort(descending=True)[: int(share * len(score))]
    return float(label[kept].sum() / label.sum())


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="waves to train on")
    parser.add_argument("--held", type=Path, required=True, help="waves to measure on")
    parser.add_argument("--positions", type=int, default=30000, help="to train on")
    parser.add_argument("--held-positions", type=int, default=8000, help="to measure on")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--share", type=float, default=0.4, help="of the positions to hand over")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument(
        "--cache", type=Path, help="keep what small said here, to train again on it"
    )
    parser.add_argument("--threads", type=int, default=1, help="more pay on an idle machine only")
    parser.add_argument("--out", type=Path, default=ROOT / "examples/heads")
    parser.add_argument("--card", type=Path, default=Path(__file__).with_name("CARD.md"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    began = time.process_time()
    steps = kept(args.cache, "train", lambda: collect(args.data, args.positions, args.seed))
    print(f"{len(steps.differs)} positions, {time.process_time() - began:.0f} CPU s", flush=True)
    held = kept(args.cache, "held", lambda: collect(args.held, args.held_positions, args.seed))
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [("small's entropy", held.entropy)]
    for name, kind, module, labels in (
        ("r2r", "r2r", R2R(steps), steps.differs),
        ("citer", "mlp", Citer(steps), 1 - steps.differs),
    ):
        train(module, steps, labels, args.epochs, args.seed)
        path = args.out / f"{name}.safetensors"
        metadata = {
            "tokenrouter_head": "1",
            "kind": kind,
            "source": "tools/heads/train.py, demo pair",
        }
        if kind == "mlp":
            metadata["activations"] = "relu,identity"
        tensors = {key: value.half().contiguous() for key, value in module.tensors().items()}
        save_file(tensors, path, metadata=metadata)
        share = args.share if name == "r2r" else 1 - args.share  # low scores of citer hand over
        threshold = float(ask(path, steps).sort(descending=True).values[int(share * len(labels))])
        save_file(tensors, path, metadata=metadata | {"threshold": f"{threshold:.2f}"})
        score = ask(path, held) if name == "r2r" else 1 - ask(path, held)
        rows.append((f"`{name}.safetensors`, {path.stat().st_size // 1000} kB", score))
    lines = ["| score | AUC | caught at 20 % | 40 % | 60 % |", "|---|---|---|---|---|"]
    for name, score in rows:
        shares = [f"{100 * caught(score, held.differs, s):.1f} %" for s in (0.2, 0.4, 0.6)]
        lines.append(f"| {name} | {auc(score, held.differs):.3f} | {' | '.join(shares)} |")
    text = f"""# The heads of the examples

Made by `python tools/heads/train.py --positions {args.positions} --held-positions {args.held_positions} --epochs {args.epochs} --seed {args.seed}` in {time.process_time() - began:.0f} CPU seconds, for the
demo's small model as it was then. Trained on {len(steps.differs)} positions of text that large sampled, measured on {len(held.differs)}
positions of held-out prompts; small's likeliest token is not large's at {100 * float(held.differs.mean()):.1f} % of them. `caught at 20 %`: of
those positions, the share that is among the 20 % with the highest score.

{chr(10).join(lines)}

The threshold in each file is the one at which {100 * args.share:.0f} % of the training positions go to large.
"""
    args.card.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
