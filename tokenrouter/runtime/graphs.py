"""Captured steps: decodes and short extends run as graphs over a range of (requests, tokens), everything else eagerly.

Buckets are powers of two. A batch goes into the smallest that holds it: as many requests, and for each as many new tokens as the
longest has. What fits none runs eagerly and is counted by its reason:

    tokens      a request has more new tokens than the largest bucket: a prefill chunk
    requests    more requests than the largest bucket
    scored      a prompt is scored, which needs logits after many tokens of a request
    context     a request whose padding would not fit its table of pages
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from tokenrouter.runtime.done import Done
from tokenrouter.runtime.model import ExtendOutput, Extension, KVCache, LanguageModel
from tokenrouter.runtime.model.capture import Capture, Work, capture_for
from tokenrouter.runtime.model.static import Bucket, Static

if TYPE_CHECKING:
    from tokenrouter.runtime.fused import Fused
    from tokenrouter.runtime.messages import Reason
    from tokenrouter.runtime.scheduler import Chunk

MOST_REQUESTS = 64
TOKENS = (1, 2, 4, 8)  # new tokens a request; what a hand-off usually brings


@dataclass(eq=False, slots=True)
class _Captured:
    """A bucket's buffers, its work, and where its results lie."""

    static: Static
    output: ExtendOutput | None = None
    done: Done | None = None
    replay: Work | None = None


def buckets(max_active: int) -> list[Bucket]:
    """Return the buckets for so many requests at once, the largest first."""
    most = min(MOST_REQUESTS, 1 << max(0, max_active - 1).bit_length())
    sizes = [1 << at for at in range(most.bit_length())]
    return [Bucket(r, n) for r in reversed(sizes) for n in reversed(TOKENS)]


class Wanted(NamedTuple):
    """Which steps are to be captured."""

    sizes: Sequence[Bucket]
    context: int  # the most tokens that a request may have
    hidden: bool  # whether the hidden state is asked for


class Graphs:
    """The captured steps of one model, and how often they and their absence were used."""

    def __init__(
        self,
        model: LanguageModel,
        cache: KVCache,
        capture: Capture,
        sizes: Sequence[Bucket],
        *,
        pages: int,  # of a request, at most
        scratch: int,  # the cache's page that padding writes to
        hidden: bool,  # whether the hidden state is asked for
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model
        self.cache = cache
        self.capture = capture
        self.hidden = hidden
        self.replays: Counter[Bucket] = Counter()
        self.eager: Counter[Reason] = Counter()
        self.decided = 0  # rows that captured steps sampled and routed
        self._requests = sorted({bucket.requests for bucket in sizes})
        self._tokens = sorted({bucket.tokens for bucket in sizes})
        self._captured: dict[Bucket, _Captured] = {}
        for bucket in sizes:
            static = Static.new(bucket, pages, cache.page_size, scratch, device)
            self._captured[bucket] = _Captured(static)
        self.fused: Fused | None = None
        self.prepared = False
        self.done: Done | None = None  # of the last step that was read
        self._loaded = False

    @classmethod
    def new(
        cls,
        model: LanguageModel,
        cache: KVCache,
        wanted: Wanted,
        pages: int,
        device: torch.device | str,
    ) -> Graphs:
        """Return the captured steps over a cache of so many pages and, behind them, one for padding."""
        longest = min(wanted.context, pages * cache.page_size)
        return cls(
            model,
            cache,
            capture_for(torch.device(device)),
            wanted.sizes,
            pages=-(-(longest + max(TOKENS)) // cache.page_size),
            scratch=pages,
            hidden=wanted.hidden,
            device=device,
        )

    @torch.inference_mode()
    def prepare(self, fused: Fused | None = None) -> None:
        """Capture every bucket, with what follows the model where that can be part of it."""
        self.fused, self.prepared = fused, True
        for captured in self._captured.values():
            self._make(captured)

    def _make(self, captured: _Captured) -> None:
        def work() -> None:
            batch = captured.static.batch()
            output = self.model.extend(batch, self.cache, hidden=self.hidden)
            captured.output = self.capture.keep(captured.output, output)
            if self.fused is not None:
                done = self.fused.work(captured.output)
                captured.done = self.capture.keep(captured.done, done)

        captured.output = captured.done = None
        captured.replay = self.capture.capture(work)

    def find(self, extensions: Sequence[Extension]) -> Bucket | Reason:
        """Return the bucket of a batch, or why it has none."""
        if any(extension.samples > 1 for extension in extensions):
            return "scored"
        tokens = max(len(extension.tokens) for extension in extensions)
        n = next((n for n in self._tokens if n >= tokens), None)
        if n is None:
            return "tokens"
        r = next((r for r in self._requests if r >= len(extensions)), None)
        if r is None:
            return "requests"
        bucket = Bucket(r, n)
        room = self._captured[bucket].static.room
        return bucket if all(e.start + n <= room for e in extensions) else "context"

    @property
    def most(self) -> int:
        """The most requests that a captured step has."""
        return self._requests[-1]

    def ahead(self, chunks: list[Chunk]) -> None:
        """Lay what the host knows of the next batch into the buffers, so that `done` can tell what was done beyond the model."""
        fits = self.fused is not None and len(chunks) <= self.most
        self._loaded = fits and self.fused is not None and self.fused.load(chunks)

    @torch.inference_mode()
    def read(self, extensions: Sequence[Extension]) -> ExtendOutput | None:
        """Read a batch by a captured step; None, and a count, where none holds it."""
        self.done, loaded, self._loaded = None, self._loaded, False
        found = self.find(extensions)
        if not isinstance(found, Bucket):
            self.eager[found] += 1
            return None
        self.replays[found] += 1
        self.capture.wait()
        self._captured[found].static.fill(extensions)
        output = self.run(found)
        # A copy: the next replay writes over what this one gave.
        sampling = [at for at, extension in enumerate(extensions) if extension.samples]
        done = self._captured[found].done
        if loaded and done is not None:
            self.done = Done(*(tensor[sampling] for tensor in done))
            self.decided += len(sampling)
        hidden = output.hidden
        return ExtendOutput(output.logits[sampling], None if hidden is None else hidden[sampling])

    @torch.inference_mode()
    def run(self, bucket: Bucket) -> ExtendOutput:
        """Replay a bucket over what lies in its buffers, and return where its results lie."""
        captured = self._captured[bucket]
        if captured.replay is None:
            self._make(captured)
        assert captured.replay is not None
        captured.replay()
        assert captured.output is not None
        return captured.output


def counted(runner: object) -> tuple[list[tuple[int, int, int]], dict[str, int]]:
    """Return how often a runner replayed steps, by requests and tokens, and ran them eagerly, by reason."""
    graphs = getattr(runner, "graphs", None)  # runners of tests have none
    if not isinstance(graphs, Graphs):
        return [], {}
    return [(*bucket, n) for bucket, n in sorted(graphs.replays.items())], {
        str(r): n for r, n in graphs.eager.items()
    }
