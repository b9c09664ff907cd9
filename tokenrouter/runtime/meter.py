"""What one subserver counts of its batches: launches, sizes, delays, moves between models, step times.

Everything is cumulative since the start of the subserver, so that a lost message costs nothing and a reader takes
differences. Step times are medians of the latest steps of a size: an outlier does not move them, a drift does. Where models step
in turn, steps that follow another model's are told apart, for caches full of other weights make them longer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from statistics import median

from tokenrouter.runtime.gate import REASONS
from tokenrouter.runtime.messages import DELAY_BOUNDS_MS, Move, Report, RouteState, StepTime, Tally
from tokenrouter.runtime.phases import Phases
from tokenrouter.runtime.scheduler import Scheduler

LATEST = 31  # steps of one size that a median is taken over
MOST_LEFT = 16  # phases of a stay that are told apart; longer ones count as open
EVERY_MS = 500.0  # between two tallies

Station = tuple[int, int]  # home, steps left


def station(state: RouteState) -> Station:
    """Return where within its owner a request is: (-1, 0) outside a stay."""
    if state.home is None:
        return -1, 0
    counted = state.until is None and state.remaining <= MOST_LEFT
    return state.home, state.remaining if counted else -1


class Meter:
    """The counters of one subserver."""

    def __init__(self, model: int, epoch: int) -> None:
        self.model = model
        self.epoch = epoch
        self.steps = 0
        self.entered = self.ended = self.ended_tokens = 0
        self._launches: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._sizes: Counter[int] = Counter()
        self._delays = [0] * (len(DELAY_BOUNDS_MS) + 1)
        self._delay_sum_ms = 0.0
        self._moves: Counter[tuple[Station, int, Station, bool]] = Counter()
        self.passed_ms: float | None = None  # since another's step right before this
        self._times: dict[tuple[int, bool], deque[float]] = {}
        self._timed: Counter[tuple[int, bool]] = Counter()
        self.handoffs: Counter[tuple[int, int]] = Counter()  # by peer and rule, -1 where none
        self._told_at: float | None = None
        self._told_steps = 0

    def launched(self, reason: str, delays_ms: list[float]) -> None:
        """Count a batch; `delays_ms` are the times at the gate of the requests that passed it."""
        self.steps += 1
        self._launches[reason if delays_ms else "prefill"] += 1
        if delays_ms:
            self._sizes[len(delays_ms)] += 1
        for delay in delays_ms:
            self._delays[bisect_left(DELAY_BOUNDS_MS, delay)] += 1
            self._delay_sum_ms += delay

    def timed(self, size: int, elapsed_ms: float) -> None:
        """Count the time of a step that held decodes and returns only."""
        kind = size, self.passed_ms is not None
        whole = elapsed_ms + (self.passed_ms or 0.0)
        self._times.setdefault(kind, deque(maxlen=LATEST)).append(whole)
        self._timed[kind] += 1

    def moved(self, before: RouteState, after: RouteState, *, kept: bool) -> None:
        """Count one request's step."""
        self._moves[station(before), after.owner, station(after), kept] += 1

    def due(self, now_ms: float) -> bool:
        """Return whether there is something new to tell, and it is time."""
        if self.steps == self._told_steps:
            return False
        if self._told_at is None:
            self._told_at = now_ms
        return now_ms - self._told_at >= EVERY_MS

    def tally(self, now_ms: float, *, n_active: int, window: int, waiting: int) -> Tally:
        """Return the counters, told now."""
        self._told_at, self._told_steps = now_ms, self.steps
        pairs: dict[tuple[Station, int, Station], list[int]] = {}
        for (before, target, after, kept), n in self._moves.items():
            pair = pairs.setdefault((before, target, after), [0, 0])
            pair[0] += n
            pair[1] += n if kept else 0
        return Tally(
            model=self.model,
            epoch=self.epoch,
            steps=self.steps,
            n_active=n_active,
            window=window,
            waiting=waiting,
            launches=dict(self._launches),
            batch_sizes=dict(self._sizes),
            delays=list(self._delays),
            delay_sum_ms=self._delay_sum_ms,
            entered=self.entered,
            ended=self.ended,
            ended_tokens=self.ended_tokens,
            moves=[
                Move(
                    home=before[0],
                    left=before[1],
                    target=target,
                    target_home=after[0],
                    target_left=after[1],
                    n=n,
                    kept=kept,
                )
                for (before, target, after), (n, kept) in pairs.items()
            ],
            times=[
                StepTime(size=kind[0], after=kind[1], n=self._timed[kind], median_ms=median(times))
                for kind, times in sorted(self._times.items())
            ],
        )


def report(meter: Meter, scheduler: Scheduler, phases: Phases, *, check: bool) -> Report:
    """Return what a subserver holds, and whether it adds up."""
    problem = ""
    try:
        if check:
            scheduler.check()
    except AssertionError as error:
        problem = str(error) or "the pool does not add up"
    sequences = scheduler.sequences.values()
    return Report(
        model=meter.model,
        epoch=meter.epoch,
        running=sum(s.owned for s in sequences),
        pending=sum(not s.owned for s in sequences),
        pages=scheduler.pool.total,
        free=scheduler.pool.n_free,
        kept=scheduler.pool.n_kept,
        preempted=scheduler.n_preempted,
        steps=meter.steps,
        problem=problem,
        prefix_asked=scheduler.n_asked,
        prefix_found=scheduler.n_found,
        handoffs=[(*to, n) for to, n in meter.handoffs.items()],
        phases=phases.seconds(),
    )
