"""What signals must be, whatever the model says: ranges, and the laws between them.

With p = softmax(logits) over a vocabulary of V, P the largest probability and k = floor(1/P):
    -k P ln P - (1 - kP) ln(1 - kP)  <=  entropy  <=  -P ln P - (1 - P) ln((1 - P) / (V - 1))
The upper bound is Fano's (all mass beside P spread evenly), the lower one puts as much as P allows on k tokens. Both fall
as P grows. Further: margin <= P, margin >= 2 P - 1, P <= mass(k) <= k P, mass is monotone in k, logprob <= ln P, a token
count never exceeds `position`, the counts of all models sum to it, share(M) * position = count(M), so that share(M) is at most count(M), shares sum to 1 at
most (to 0 at position 0), a share of 0 is a count of 0 and one of 1 leaves the others none, max(s, n) >= s, max(s, n) >= mean(s, n),
entropy_norm <= h(P) / ln 2 from P = 1/2 on (at V = 2; a larger V leaves less, as (V / 2)^2 >= V - 1), a candidate of rank r > 1 has at most 1 / r and at most 1 - P, one of rank 1 has P.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import exp, floor, inf, log, log1p
from typing import NamedTuple

from tokenrouter.compiler.expr import Aggregate, Arithmetic, Expr, HeadOf, Lit, ParamOf, SignalOf
from tokenrouter.compiler.ir import Automaton
from tokenrouter.signals import SIGNALS

LARGEST_VOCABULARY = 1 << 24  # assumed where the models are not at hand


class Range(NamedTuple):
    """The closed interval that a term lies in."""

    low: float = -inf
    high: float = inf


def range_of(auto: Automaton, term: Expr) -> Range:
    """Return where the value of a numeric term must lie."""
    match term:
        case Aggregate():
            return range_of(auto, term.of)
        case HeadOf():
            return Range(0.0, 1.0)
        case SignalOf(name="entropy"):
            return Range(0.0, log(auto.vocabulary))
        case SignalOf(name="maxprob"):
            return Range(1.0 / auto.vocabulary, 1.0)
        case SignalOf():
            return Range(SIGNALS[term.name].low, SIGNALS[term.name].high)
        case ParamOf():
            decl = next(decl for decl in auto.params if decl.name == term.name)
            low, high = decl.low, decl.high
            return Range(-inf if low is None else low, inf if high is None else high)
        case Lit():
            return Range(float(term.value), float(term.value))
        case _:
            return Range()


def at_most(x: Expr, y: Expr) -> str:
    """Return the law by which x <= y always holds, as text; '' where there is none."""
    match x, y:
        case SignalOf(name="margin"), SignalOf(name="maxprob"):
            law = "`margin` is at most `maxprob`"
        case SignalOf(name="margin" | "maxprob"), SignalOf(name="mass"):
            law = f"`{x}` is at most `{y}`"
        case SignalOf(name="mass"), SignalOf(name="mass") if x.args <= y.args:
            law = f"`{x}` is at most `{y}`"
        case SignalOf(name="mass", args=(1,)), SignalOf(name="maxprob"):
            law = "`mass(1)` is `maxprob`"
        case SignalOf(name="count"), SignalOf(name="position"):
            law = f"`{x}` is at most `position`"
        case SignalOf(name="share"), SignalOf(name="count") if x.args == y.args:
            law = f"`{x}` is at most `{y}`"
        case SignalOf(name="share"), SignalOf(name="position"):
            law = f"`{x}` is 0 at position 0"
        case inner, Aggregate(kind="max") if y.of == inner:
            law = f"`{y}` is at least `{x}`"
        case Aggregate(kind="mean" | "ewma"), Aggregate(kind="max") if (x.of, x.n) == (y.of, y.n):
            law = f"`{x}` is at most `{y}`"
        case _, Aggregate(kind="max") if law := at_most(x, y.of):
            law = f"{law}; `{y}` is at least `{y.of}`"
        case (Arithmetic(sign="*"), _) | (_, Arithmetic(sign="*")):
            law = _multiples(x, y)
        case _:
            law = ""
    return law


def _multiples(x: Expr, y: Expr) -> str:
    """Return the law by which x <= y where both are multiples of what is never below 0; '' where there is none."""
    (k, of), (m, other) = _multiple(x), _multiple(y)
    if of != other or k > m or not (isinstance(of, SignalOf) and SIGNALS[of.name].low >= 0.0):
        return ""
    return f"`{of}` is at least 0"


def _multiple(term: Expr) -> tuple[float, Expr]:
    match term:
        case (
            Arithmetic(sign="*", left=Lit() as k, right=of)
            | Arithmetic(sign="*", left=of, right=Lit() as k)
        ):
            return float(k.value), of
        case _:
            return 1.0, term


def most_entropy(p: float, v: int) -> float:
    """Return the largest entropy where the largest probability is `p` (Fano)."""
    p = min(1.0, max(p, 1.0 / v))
    rest = 1.0 - p
    return max(0.0, -_plogp(p) - (rest * log(rest / (v - 1)) if rest > 0.0 and v > 1 else 0.0))


def least_entropy(p: float) -> float:
    """Return the least entropy where the largest probability is `p`."""
    if p <= 0.0:
        return inf
    k = floor(1.0 / min(p, 1.0))
    return max(0.0, -k * _plogp(min(p, 1.0)) - _plogp(max(0.0, 1.0 - k * min(p, 1.0))))


def _plogp(p: float) -> float:
    return p * log(p) if p > 0.0 else 0.0


def _solve(falling: Callable[[float], float], value: float, low: float) -> float:
    """Return where a falling function on [low, 1] takes a value, to within 1e-12 on the safe side of neither."""
    high = 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > value else (low, middle)
    return (low + high) / 2


class Bound(NamedTuple):
    """A consequence of a law: `term` lies in `range`; `why` has places for the numbers `of` which it speaks."""

    term: Expr
    range: Range
    why: str
    of: tuple[float, ...] = ()


ENTROPY = SignalOf("entropy")
MAXPROB = SignalOf("maxprob")
MARGIN = SignalOf("margin")
LOGPROB = SignalOf("logprob")
POSITION = SignalOf("position")
RANK = SignalOf("rank")
NORM = SignalOf("entropy_norm")
TIED = frozenset(
    {"share", "count", "position", "rank", "logprob"}
)  # what the curved laws speak of without `maxprob`
BENT = frozenset(
    {"entropy", "margin", "logprob", "mass"}
)  # what `maxprob` bounds, and is bounded by
SLACK = 1e-9  # two bounds that cross by less may meet


class Told(NamedTuple):
    """A bound, and what says so: `why` has a place for the number `at`."""

    value: float
    why: str = ""
    at: float = 0.0

    def keeps(self, side: str) -> str:
        """Return the bound as the reason of another."""
        return f"{self.why.format(self.at)} keeps `maxprob` {side} {self.value:.3g}"


def consequences(v: int, models: Sequence[str], known: dict[Expr, Range]) -> list[Bound]:
    """Return what the curved laws say of the terms that are mentioned, from where they lie now; `models` are all."""
    out: list[Bound] = []
    p, h = known.get(MAXPROB), known.get(ENTROPY)
    if p and h:
        out += _entropy(v, p, h)
    if p:
        out += _beside_maxprob(p, known)
    if RANK in known and LOGPROB in known:
        out += _rank(known[RANK], known[LOGPROB], p)
    out += _shares(known)
    out += _all_or_none(known)
    if POSITION in known:
        out += _kept(models, known, known[POSITION])
    return [bound for bound in out if bound.term in known]


def no_maxprob(v: int, known: list[tuple[SignalOf, Range]]) -> str | None:
    """Return why no largest probability is in keeping with where signals lie; None where one is."""
    low, high, h = Told(1.0 / v), Told(1.0), Range()
    for term, at in known:
        match term.name:
            case "entropy":
                h = at
            case "margin":
                low = max(low, Told(at.low, "`margin` above {:g}", at.low))
                high = min(high, Told((1.0 + at.high) / 2.0, "`margin` below {:g}", at.high))
            case "logprob":
                low = max(low, Told(exp(at.low), "`logprob` above {:g}", at.low))
            case "mass" if isinstance(term.args[0], int):
                k = max(1, term.args[0])
                low = max(low, Told(at.low / k, f"`{term}` above {{:g}}", at.low))
                high = min(high, Told(at.high, f"`{term}` below {{:g}}", at.high))
            case _:
                pass
    if low.value > high.value + SLACK:
        return f"{low.keeps('above')}; {high.keeps('below')}"
    if h.low > (top := most_entropy(low.value, v)) + SLACK:
        return f"{low.keeps('above')}; that keeps `entropy` below {top:.3g} nats"
    if h.high < (bottom := least_entropy(high.value)) - SLACK:
        return f"{high.keeps('below')}; that keeps `entropy` above {bottom:.3g} nats"
    return None


def _entropy(v: int, p: Range, h: Range) -> list[Bound]:
    out = []
    if p.low > 1.0 / v:
        top = most_entropy(p.low, v)
        why = "`maxprob` above {:g} keeps `entropy` below {:.3g} nats"
        out.append(Bound(ENTROPY, Range(high=top), why, (p.low, top)))
    if p.high < 1.0:
        least = least_entropy(p.high)
        why = "`maxprob` below {:g} keeps `entropy` above {:.3g} nats"
        out.append(Bound(ENTROPY, Range(low=least), why, (p.high, least)))
    if h.low > 0.0:
        top = _most_maxprob(h.low, v)
        why = "`entropy` above {:g} nats keeps `maxprob` below {:.3g}"
        out.append(Bound(MAXPROB, Range(high=top), why, (h.low, top)))
    if h.high < log(v):
        least = _least_maxprob(h.high, v)
        why = "`entropy` below {:g} nats keeps `maxprob` above {:.3g}"
        out.append(Bound(MAXPROB, Range(low=least), why, (h.high, least)))
    return out


def _rank(rank: Range, logprob: Range, p: Range | None) -> list[Bound]:
    out = []
    if rank.low > 1.0:
        top = -log(rank.low)
        why = "`rank` of {:g} or more keeps `logprob` below {:.3g}"
        out.append(Bound(LOGPROB, Range(high=top + 1e-12), why, (rank.low, top)))
        if p and 0.0 < p.low < 1.0:
            top = log1p(-p.low)
            why = "`maxprob` above {:g} leaves tokens that are not the likeliest a `logprob` below {:.3g}"
            out.append(Bound(LOGPROB, Range(high=top + 1e-12), why, (p.low, top)))
    if logprob.low > -log(2.0) + SLACK:
        why = "`logprob` above {:g} is that of the likeliest token, of `rank` 1"
        out.append(Bound(RANK, Range(high=1.0), why, (logprob.low,)))
    if rank.high <= 1.0 and p:
        why = "`logprob` at `rank` 1 is that of `maxprob`"
        out.append(Bound(MAXPROB, Range(high=exp(logprob.high) + 1e-12), why))
        if p.low > 0.0:
            out.append(Bound(LOGPROB, Range(low=log(p.low) - 1e-12), why))
    return out


def _shares(known: dict[Expr, Range]) -> list[Bound]:
    shares = [term for term in known if isinstance(term, SignalOf) and term.name == "share"]
    if len(shares) < 2:
        return []
    sure = sum(max(0.0, known[term].low) for term in shares)
    return [
        Bound(
            term,
            Range(high=1.0 - sure + max(0.0, known[term].low) + 1e-12),
            "shares sum to 1 at most",
        )
        for term in shares
    ]


def _all_or_none(known: dict[Expr, Range]) -> Iterator[Bound]:
    """Yield what a share of nothing or of all says of counts, wherever the position is."""
    shares = {
        t.args: (t, at) for t, at in known.items() if isinstance(t, SignalOf) and t.name == "share"
    }
    counts = [t for t in known if isinstance(t, SignalOf) and t.name == "count"] if shares else []
    for count in counts:
        for args, (share, at) in shares.items():
            if at.high <= 0.0 and args == count.args:
                yield Bound(count, Range(high=0.0), f"where `{share}` is 0 so is `{count}`")
            if at.low >= 1.0 and args != count.args:
                yield Bound(count, Range(high=0.0), f"where `{share}` is 1 `{count}` is 0")


def _kept(models: Sequence[str], known: dict[Expr, Range], position: Range) -> Iterator[Bound]:
    """Yield what kept tokens, those of each model and all of them, say of each other."""
    counts = {
        SignalOf("count", (model,)): known.get(SignalOf("count", (model,))) for model in models
    }
    ranges = {term: at for term, at in counts.items() if at is not None}
    if not ranges:
        return
    why = "counts sum to `position` at most"
    yield Bound(POSITION, Range(low=sum(at.low for at in ranges.values())), why)
    for term in ranges:
        others = [at for other, at in ranges.items() if other != term]
        yield Bound(term, Range(high=position.high - sum(at.low for at in others)), why)
        if len(ranges) == len(models):
            least = position.low - sum(at.high for at in others)
            yield Bound(term, Range(low=least), "the counts of all models sum to `position`")
    if len(ranges) == len(models):
        most = sum(at.high for at in ranges.values())
        yield Bound(POSITION, Range(high=most), "the counts of all models sum to `position`")
    for term, at in ranges.items():
        share = SignalOf("share", term.args)
        if share in known:
            yield from _share(term, at, share, known[share], position)


def _share(
    count: SignalOf, c: Range, share: SignalOf, s: Range, position: Range
) -> Iterator[Bound]:
    """Yield what share(M) = count(M) / position says of the three; a share is a float, and so rounded."""
    why = f"`{share}` is `{count}` / `position`"
    if position.high < inf:
        yield Bound(count, Range(high=s.high * position.high + SLACK), why)
    yield Bound(count, Range(low=max(0.0, s.low) * position.low - SLACK), why)
    if position.low > 0.0:
        yield Bound(share, Range(high=c.high / position.low + SLACK), why)
    if 0.0 < position.high < inf:
        yield Bound(share, Range(low=c.low / position.high - SLACK), why)
    if s.high > 0.0:
        yield Bound(POSITION, Range(low=c.low / s.high - SLACK), why)
    if s.low > 0.0:
        yield Bound(POSITION, Range(high=c.high / s.low + SLACK), why)


@cache
def _most_maxprob(entropy: float, v: int) -> float:
    """Return the largest `maxprob` that leaves room for an entropy, on the safe side."""
    return _solve(lambda p: most_entropy(p, v), entropy, 1.0 / v) + 1e-9


@cache
def _least_maxprob(entropy: float, v: int) -> float:
    """Return the least `maxprob` that keeps the entropy down, on the safe side."""
    return _solve(least_entropy, entropy, 1.0 / v) - 1e-9


def _beside_maxprob(p: Range, known: dict[Expr, Range]) -> list[Bound]:
    least = 2.0 * p.low - 1.0
    why = "`maxprob` above {:g} keeps `margin` above {:.3g}"
    out = [Bound(MARGIN, Range(low=least), why, (p.low, least))]
    if p.high > 0.0:
        top = log(p.high)
        why = "`maxprob` below {:g} keeps `logprob` below {:.3g}"
        out.append(Bound(LOGPROB, Range(high=top), why, (p.high, top)))
    if p.low >= 0.5:  # in the smallest vocabulary all of the rest weighs most
        top = (-_plogp(p.low) - _plogp(1.0 - p.low)) / log(2.0)
        why = "`maxprob` above {:g} keeps `entropy_norm` below {:.3g}"
        out.append(Bound(NORM, Range(high=top), why, (p.low, top)))
    if LOGPROB in known:
        low = exp(known[LOGPROB].low)
        why = "`logprob` above {:g} keeps `maxprob` above {:.3g}"
        out.append(Bound(MAXPROB, Range(low=low - 1e-12), why, (known[LOGPROB].low, low)))
    if MARGIN in known:
        top = (1.0 + known[MARGIN].high) / 2.0
        why = "`margin` below {:g} keeps `maxprob` below {:.3g}"
        out.append(Bound(MAXPROB, Range(high=top), why, (known[MARGIN].high, top)))
    for term, at in known.items():
        if isinstance(term, SignalOf) and term.name == "mass" and isinstance(term.args[0], int):
            k = max(1, term.args[0])
            why = f"`{term}` is at most {k} times `maxprob`"
            out += [Bound(term, Range(high=k * p.high), why)]
            out += [Bound(MAXPROB, Range(low=at.low / k), why)]
    return out
