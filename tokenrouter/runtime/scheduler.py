"""Which sequences go into the next batch, with how many tokens, and who gives up pages for them.

Pure decisions: no torch, no sockets, no clocks. One batch mixes prefill chunks, returns with a few unseen tokens and
plain decodes; all are extends of 1..n tokens. Extends of up to `SHORT` tokens pass the gate, and up to `RETURN` tokens those of
a request that has been read here before; longer ones are cut into chunks and ride along. Requests that are away, or barred, are skipped; their pages stay.

Sequences are looked at in order of rank, those of one rank in order of admission; «older» and «younger» mean this order.
Prompts share what a batch may read of them: half of it is for those that are sooner read than the oldest, shortest first, the
rest for the oldest. So a short prompt does not wait for long ones, and the oldest gets on at half speed at least.
When the pool is full, cached prefixes go first, then sequences are
preempted: those that are away before those that are here, the youngest first. A preempted sequence keeps its tokens and
its place and reads them again when its turn comes.

INVARIANT: nothing older than a sequence is preempted for its prefill, and the oldest may take every page it needs; it
fits the pool alone (`fits`), so it always goes on, ends, and leaves its place to the next. Nothing waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tokenrouter.runtime.pace import Allowance, Pace
from tokenrouter.runtime.pool import PagePool
from tokenrouter.runtime.prefix import PrefixCache
from tokenrouter.runtime.sequence import Sequence

SHORT = 8  # unseen tokens of a decode or of a prompt that passes the gate; more are a prefill
FREE = Allowance()
SPARED = 2  # fifths of a pool that are used before kept prefixes give way: 1 GB of pages and a small model stay below 1.2 GB
RETURN = 64  # of a return from a peer: beyond the gate it would go in a batch of its own, whatever the window


class Chunk(NamedTuple):
    """One sequence's part of a batch."""

    sequence: Sequence
    start: int
    n: int
    samples: bool  # whether the last position's logits are wanted

    @property
    def scored(self) -> bool:
        """Whether the logits of all its positions are wanted, for what the prompt's tokens were worth."""
        return self.sequence.scored and self.start + 1 < self.sequence.n_prompt


class Scheduler:
    """The sequences of one subserver and its pages."""

    def __init__(
        self, capacity_tokens: int, page_size: int, max_tokens: int = 512, *, sparing: bool = False
    ) -> None:
        assert capacity_tokens >= page_size, (capacity_tokens, page_size)
        self.page_size = page_size
        self.max_tokens = max_tokens  # of one batch; decodes may exceed it, chunks never do
        total = capacity_tokens // page_size
        self.pool = PagePool(total, spared=SPARED * total // 5 if sparing else total)
        self.prefix = PrefixCache(self.pool, page_size)
        self.sequences: dict[int, Sequence] = {}  # in order of rank and admission
        self.n_preempted = 0
        self.n_asked = self.n_found = 0  # tokens looked for in the prefix cache, and found

    def fits(self, n_tokens: int) -> bool:
        """Return whether so many cached tokens fit the empty pool."""
        return -(-n_tokens // self.page_size) <= self.pool.total

    def add(self, sequence: Sequence) -> None:
        """Take a sequence in, at its place."""
        assert sequence.request not in self.sequences, sequence.request
        last = next(reversed(self.sequences.values()), None)
        self.sequences[sequence.request] = sequence
        if last is not None and last.place > sequence.place:
            ordered = sorted(self.sequences.items(), key=lambda item: item[1].place)
            self.sequences.clear()
            self.sequences.update(ordered)

    def remove(self, request: int) -> Sequence | None:
        """Release a request's pages and forget it; None where it is unknown."""
        sequence = self.sequences.pop(request, None)
        if sequence is not None:
            self.release(sequence)
        return sequence

    def release(self, sequence: Sequence) -> None:
        """Give a sequence's pages back; what they hold must be read again."""
        self.pool.release(sequence.pages)
        sequence.pages = []
        sequence.cached = 0
        if sequence.owned:
            self.arrive(sequence)

    def arrive(self, sequence: Sequence) -> None:
        """Note that a sequence is owned here now: at the gate, or far from it where much is unseen."""
        assert sequence.owned, sequence.request
        sequence.prefilling = sequence.unseen > (RETURN if sequence.cached else SHORT)

    def gated(self) -> list[Sequence]:
        """Return the sequences that wait at the gate."""
        return [s for s in self.sequences.values() if _gated(s)]

    def held(self) -> list[Sequence]:
        """Return the sequences that are owned here and cannot reach the gate for now."""
        return [s for s in self.sequences.values() if s.owned and not _gated(s)]

    @property
    def barred(self) -> bool:
        """Whether any sequence waits for what its grammar lets follow."""
        return any(s.barred for s in self.sequences.values())

    def paced(self, pace: Pace, *, gate_open: bool, writing: bool) -> list[Chunk]:
        """Return the next batch, with as much of prompts as those that write may be kept waiting for."""
        allowance = pace.allowance(writing=writing, passes=gate_open)
        chunks = self.next_batch(gate_open=gate_open, allowance=allowance)
        if chunks or allowance.work > 0:
            return chunks
        # Those that wait find no pages, and prompts have them.
        allowance = pace.allowance(writing=writing, passes=False)
        return self.next_batch(gate_open=gate_open, allowance=allowance)

    def next_batch(self, *, gate_open: bool, allowance: Allowance = FREE) -> list[Chunk]:
        """Return the chunks of the next batch; pages are theirs already. Empty where nothing can run.

        Decodes and returns take part only where the gate is open. Prefill takes what they leave of the budget, and a
        quarter of it in any case, so that a long prompt neither stops decoding nor is stopped by it; and no more than
        is allowed.
        """
        ready = [s for s in self.sequences.values() if s.unseen]
        short = sum(s.unseen for s in ready if _gated(s)) if gate_open else 0
        # At least one token, or decodes that find no page would stop the prefill that holds the pages.
        left = float(max(self.max_tokens - short, self.max_tokens // 4, 1))
        left = min(left, allowance.work)
        prompts = [s for s in ready if not _gated(s) and not s.barred]
        kept = self._kept_for_short(prompts, left / 2, allowance)
        chunks: list[Chunk] = []
        for at, sequence in enumerate(ready):
            gated = _gated(sequence)
            if sequence.barred or (gated and not gate_open):
                continue
            if not sequence.pages:
                self._match(sequence)
            wanted = sequence.unseen
            if not gated:
                kept.pop(sequence.request, None)
                spare = left - sum(kept.values())
                wanted = min(wanted, allowance.affords(sequence.start, spare))
            n = self._room(sequence, wanted, gated, ready[at + 1 :]) if wanted else 0
            if n == 0 or (n < wanted and gated):
                continue
            start = sequence.start
            samples = sequence.owned and start + n == len(sequence.tokens)
            chunks.append(Chunk(sequence, start, n, samples))
            left -= 0 if gated else n * allowance.cost(start)
        # Reading ahead for a sequence that is away may have been planned before its pages were taken.
        return [chunk for chunk in chunks if chunk.sequence.pages]

    def _kept_for_short(
        self, prompts: list[Sequence], work: float, allowance: Allowance
    ) -> dict[int, float]:
        """Return by request what is kept for those that are sooner read than the oldest, and have pages in the pool now."""
        kept: dict[int, float] = {}
        pages = self.pool.available
        for sequence in sorted(prompts[1:], key=lambda s: s.unseen):
            n = min(sequence.unseen, allowance.affords(sequence.start, work))
            pages -= -(-(sequence.start + n) // self.page_size) - len(sequence.pages)
            if n == 0 or pages < 0 or sequence.unseen >= prompts[0].unseen:
                break
            kept[sequence.request] = n * allowance.cost(sequence.start)
            work -= kept[sequence.request]
        return kept

    def done(self, chunks: list[Chunk]) -> None:
        """Note that the model has read these chunks; full pages can be found by others from now on."""
        size = self.page_size
        for sequence, start, n, samples in chunks:
            if samples:
                sequence.prefilling = False
            full = sequence.cached // size
            sequence.cached = start + n
            if sequence.cached // size > full:
                self.prefix.insert(sequence.tokens, sequence.pages, full, sequence.cached // size)

    def _match(self, sequence: Sequence) -> None:
        """Begin with the pages of a known prefix, up to the last token, whose logits are needed."""
        if sequence.scored:
            return  # the logits of all its tokens are needed
        limit = len(sequence.tokens) - 1 if sequence.owned else sequence.read_ahead
        sequence.pages = self.prefix.match(sequence.tokens, limit)
        sequence.cached = len(sequence.pages) * self.page_size
        if sequence.pages or not sequence.looked:  # one that waits for pages looks at every step
            self.n_asked += limit
            self.n_found += sequence.cached
        sequence.looked = True

    def _room(self, sequence: Sequence, wanted: int, gated: bool, younger: list[Sequence]) -> int:
        """Give a sequence pages for its next tokens, and return how many of `wanted` they hold."""
        size = self.page_size
        needed = -(-(sequence.start + wanted) // size) - len(sequence.pages)
        if needed > self.pool.available:
            for victim in self._victims(sequence, gated, younger):
                self._preempt(victim)
                if needed <= self.pool.available:
                    break
        taken = min(needed, self.pool.available)
        if taken > 0:
            sequence.pages += self.pool.take(taken)
        return min(wanted, len(sequence.pages) * size - sequence.start)

    def _preempt(self, victim: Sequence) -> None:
        self.release(victim)
        victim.read_ahead = 0  # or it would take the pages back as soon as there are some
        self.n_preempted += 1

    def _victims(
        self, sequence: Sequence, gated: bool, younger: list[Sequence]
    ) -> Iterator[Sequence]:
        """Yield who gives up pages for a sequence, in order; nobody does for reading ahead."""
        if not sequence.owned:
            return
        away = [s for s in self.sequences.values() if not s.owned and s.pages]
        if not gated:
            away = [s for s in away if s.place > sequence.place]
        yield from reversed(away)
        yield from (s for s in reversed(younger) if s.owned and s.pages)

    def check(self) -> None:
        """Assert that pages, their holders and the lengths of sequences agree."""
        self.pool.check([s.pages for s in self.sequences.values()])
        for s in self.sequences.values():
            assert s.cached <= len(s.pages) * self.page_size, (s.request, s.cached, len(s.pages))
            assert s.cached <= len(s.tokens), (s.request, s.cached, len(s.tokens))


def _gated(sequence: Sequence) -> bool:
    return sequence.owned and not sequence.prefilling and not sequence.barred
