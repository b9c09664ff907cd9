"""What is sent: seeded synthetic prompts of a given length, or the lines of a file.

Synthetic prompts are made of drawn words, turned into ids by the server's own `/tokenize` and cut to length, so that
a length is a number of tokens of the served models. Each starts with other words, so that no prefix is shared unless
`shared` asks for one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenrouter.bench.http import BenchError, Http
from tokenrouter.bench.sample import Job

WORDS = (
    "river house seven under light stone winter paper green music salt window engine bird letter north garden "
    "copper story bread glass morning wheel forest silver number bridge water candle orange mountain street "
    "answer yellow table summer iron travel island clock"
)


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """How much is read and written."""

    prompt: int  # tokens
    output: int  # most tokens
    shared: int = 0  # tokens that all prompts begin with


async def synthetic(http: Http, n: int, lengths: Lengths, seed: int) -> list[Job]:
    """Return `n` jobs, the same for the same seed and tokenizer."""
    rng = random.Random(seed)
    shared = await ids(http, lengths.shared, random.Random(0)) if lengths.shared else []
    own = lengths.prompt - len(shared)
    pool = await ids(http, n * own, rng)
    return [
        Job(
            prompt=shared + pool[at * own : (at + 1) * own],
            max_tokens=lengths.output,
            seed=seed * 65536 + at,
        )
        for at in range(n)
    ]


async def ids(http: Http, n: int, rng: random.Random) -> list[int]:
    """Return `n` token ids of drawn words."""
    words = WORDS.split()
    found: list[int] = []
    while len(found) < n:
        text = " ".join(rng.choice(words) for _ in range(min(4000, n - len(found)) + 8))
        status, answer = await http.json("/tokenize", {"prompt": text}, base=http.root)
        if status != 200 or not isinstance(answer, dict) or not answer.get("tokens"):
            raise BenchError(
                f"{http.url}: no `/tokenize` that makes ids ({status}); name a file with --prompts"
            )
        found += answer["tokens"]
    return found[:n]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str | list[int]
    max_tokens: int | None = None


def from_file(path: Path, output: int) -> list[Job]:
    """Return the jobs of a file: one JSON object a line, with `prompt` and, where it wishes, `max_tokens`."""
    jobs = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=_Line)
        except msgspec.MsgspecError as error:
            raise BenchError(f"{path}:{number}: {str(error)[:1].lower()}{str(error)[1:]}") from None
        jobs.append(Job(prompt=read.prompt, max_tokens=read.max_tokens or output, seed=number))
    if not jobs:
        raise BenchError(f"{path}: holds no prompt")
    return jobs


def cycled(jobs: Sequence[Job], n: int) -> list[Job]:
    """Return `n` jobs, from the first on again where there are fewer."""
    return [jobs[at % len(jobs)] for at in range(n)]
