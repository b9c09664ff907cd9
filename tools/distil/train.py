"""Distil the student: some of the teacher's layers, trained to give the teacher's distribution.

The loss is KL(teacher || student), plus a pull of the final state towards the teacher's that fades
out. The head is frozen. Only the tokens that the teacher uses often are scored at every step; the
rest of the vocabulary is represented by a fresh random sample, weighted to stand for all of it.

    python tools/distil/train.py --gguf MODEL.gguf --data DIR --held DIR --out DIR --minutes 40
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from data import Batch, Row, epoch, pack, read_waves
from model import Decoder, load_teacher
from safetensors.torch import load_file, save_file
from torch import Tensor, multiprocessing
from torch.nn import functional

FREQUENT = 8192
SAMPLED = 1024
LOG = 20  # steps between lines of the log
CHUNK = 256  # positions scored at once, so that their logits stay in cache


def frequent_tokens(rows: list[Row], head: Tensor, seed: int) -> Tensor:
    """The ids on which the teacher puts most mass, estimated at 8,192 positions."""
    states = torch.cat([row.states for row in rows])
    rng = torch.Generator().manual_seed(seed)
    picked = states[torch.randint(len(states), (8192,), generator=rng)].float()
    mass = torch.zeros(len(head))
    for part in picked.split(512):
        mass += (part @ head.T).softmax(-1).sum(0)
    order = mass.argsort(descending=True)
    print(f"{FREQUENT} tokens hold {mass[order[:FREQUENT]].sum() / mass.sum():.4f} of the mass")
    return order


class Objective:
    """The loss over the frequent tokens and a sample of the others, with its slope in closed form."""

    def __init__(self, head: Tensor, order: Tensor, seed: int) -> None:
        self.head = head
        self.rare = order[FREQUENT:]
        self.rows = torch.cat((head[order[:FREQUENT]], torch.empty(SAMPLED, head.shape[1])))
        self.rng = torch.Generator().manual_seed(seed)
        self.weight = torch.zeros(FREQUENT + SAMPLED)
        self.weight[FREQUENT:] = math.log(len(self.rare) / SAMPLED)

    @torch.no_grad()
    def kl(self, student: Tensor, teacher: Tensor) -> tuple[float, Tensor]:
        """The mean KL and its gradient in the student's states."""
        drawn = self.rare[torch.randint(len(self.rare), (SAMPLED,), generator=self.rng)]
        self.rows[FREQUENT:] = self.head[drawn]
        total, slopes = 0.0, []
        for mine, theirs in zip(student.split(CHUNK), teacher.split(CHUNK), strict=True):
            target = torch.addmm(self.weight, theirs, self.rows.T)
            logs = torch.addmm(self.weight, mine, self.rows.T)
            target -= target.logsumexp(-1, keepdim=True)
            logs -= logs.logsumexp(-1, keepdim=True)
            probs = target.exp()
            total += target.sub_(logs).mul_(probs).sum().item()
            slopes.append(logs.exp_().sub_(probs) @ self.rows)
        return total / len(student), torch.cat(slopes) / len(student)

    @torch.no_grad()
    def distance(self, student: Tensor, teacher: Tensor) -> tuple[float, Tensor]:
        """The mean relative squared distance of the states, and its gradient."""
        gap, scale = student - teacher, teacher.square().sum(-1, keepdim=True) * len(student)
        return (gap.square() / scale).sum().item(), 2 * gap / scale


@torch.inference_mode()
def agreement(student: Decoder, rows: list[Row]) -> tuple[float, float, float]:
    """Top-1 agreement, KL and mean student entropy over the whole vocabulary."""
    same, kl, entropy, count = 0.0, 0.0, 0.0, 0
    for begin in range(0, len(rows), 8):
        batch = pack(rows[begin : begin + 8])
        states = student.hidden(batch.ids)[batch.scored]
        for mine, theirs in zip(states.split(512), batch.states.split(512), strict=True):
            logs = (mine @ student.embedding.T).log_softmax(-1)
            target = (theirs @ student.embedding.T).log_softmax(-1)
            same += (logs.argmax(-1) == target.argmax(-1)).sum().item()
            kl += functional.kl_div(logs, target, reduction="sum", log_target=True).item()
            entropy -= (logs.exp() * logs).sum().item()
            count += len(mine)
    return same / count, kl / count, entropy / count


def forever(data: Path, tokens: int, seed: int) -> Iterator[Batch]:
    """Epoch after epoch; waves written meanwhile join at the next."""
    for number in range(1_000_000):
        rows = read_waves(data)
        print(f"epoch {number}: {sum(len(row.states) for row in rows)} tokens", flush=True)
        yield from epoch(rows, tokens, seed + number)


def save(student: Decoder, path: Path) -> None:
    """Everything but the embedding, which is the teacher's."""
    own = {k: v.detach().clone() for k, v in student.state_dict().items() if k != "embedding"}
    save_file(own, path)


def resume(student: Decoder, path: Path, layers: list[int], before: list[int]) -> None:
    """Take an earlier run's weights; a layer that it lacked begins as one that adds nothing.

    The new layer keeps the teacher's weights but for the two projections that write into the
    residual stream, which are zero: the student starts from exactly the earlier run's function.
    """
    places = {layer: place for place, layer in enumerate(layers)}
    state = load_file(path)
    own = {k: v for k, v in state.items() if not k.startswith("blocks.")}
    for key, value in state.items():
        if key.startswith("blocks."):
            _, place, name = key.split(".")
            own[f"blocks.{places[before[int(place)]]}.{name}"] = value
    student.load_state_dict(own, strict=False)
    for layer in set(layers) - set(before):
        block = student.blocks[places[layer]]
        for weight in (block.out, block.down):
            torch.nn.init.zeros_(weight)


def pace(share: float, floor: float) -> float:
    """The learning rate's factor: a short warm-up, then half a cosine down to `floor`."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return min(1.0, share / 0.03) * (floor + (1 - floor) * cosine)


def work(rank: int, student: Decoder, order: Tensor, args: argparse.Namespace) -> None:
    """One worker's steps; all workers write into the same weights, without waiting for each other."""
    torch.set_num_threads(args.threads)
    seed = args.seed + 1000 * rank
    objective = Objective(student.embedding.detach(), order, seed)
    held = read_waves(args.held) if rank == 0 else []
    own = [p for p in student.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        own, lr=args.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    begin, seen, recent = time.monotonic(), 0, [0.0, 0.0]
    for step, batch in enumerate(forever(args.data, args.tokens, seed)):
        share = (time.monotonic() - begin) / (60 * args.minutes)
        for group in optimiser.param_groups:
            group["lr"] = args.rate * pace(share + 1e-3, args.floor)
        states = student.hidden(batch.ids)[batch.scored]
        kl, slope = objective.kl(states, batch.states)
        distance, pull = objective.distance(states, batch.states)
        states.backward(slope + args.pull * max(0.0, 1 - share) * pull)
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seen += len(states)
        recent = [recent[0] + kl / LOG, recent[1] + distance / LOG]
        if step % LOG == LOG - 1:
            spent = time.monotonic() - begin
            print(
                f"{rank}: step {step + 1} {spent:.0f} s, {seen} tokens: kl {recent[0]:.3f} "
                f"distance {recent[1]:.3f}",
                flush=True,
            )
            recent = [0.0, 0.0]
        if rank == 0 and (step % 100 == 99 or share >= 1):
            save(student, args.out / "student.safetensors")
            same, held_kl, entropy = agreement(student, held[:: 1 if share >= 1 else 4])
            print(
                f"held out: agreement {same:.4f} kl {held_kl:.4f} entropy {entropy:.3f}", flush=True
            )
        if share >= 1:
            return


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--held", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 1, 2, 26, 27, 28, 29])
    parser.add_argument("--resume", type=Path, help="weights of an earlier run to start from")
    parser.add_argument(
        "--resume-layers", type=int, nargs="+", help="its layers, where they differ"
    )
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--tokens", type=int, default=2048, help="positions in a step")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--floor", type=float, default=0.0, help="last share of the rate")
    parser.add_argument("--pull", type=float, default=1.0, help="initial weight of the state loss")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="threads of each worker")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    student = load_teacher(args.gguf, args.layers)
    if args.resume:
        resume(student, args.resume, args.layers, args.resume_layers or args.layers)
    order = frequent_tokens(read_waves(args.data), student.embedding.detach(), args.seed)
    student.share_memory()
    multiprocessing.spawn(work, (student, order, args), nprocs=args.workers)


if __name__ == "__main__":
    main()
