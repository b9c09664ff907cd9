"""A step on which some guards hold, found by trying: probabilities of many shapes, candidates, draws and texts.

The laws only say where no step can be. Who claims that there is one shows it. Shapes are those on which signals take their
extremes, and mixtures of them: one token with all the rest spread over n others, equal ones, falling ones, and a second
token of its own; numbers that guards name steer what is tried. A guard that is met on few steps may be met by none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from math import exp, log
from random import Random

from tokenrouter.compiler.expr import (
    Arithmetic,
    ClassOf,
    Comparison,
    Every,
    Expr,
    Lit,
    Negation,
    ParamOf,
    SignalOf,
    Some,
    TokenIs,
    rewrite,
    walk,
)
from tokenrouter.compiler.ir import Automaton
from tokenrouter.plan.literal import arithmetic, compare
from tokenrouter.signals import lexical_class

MOST = 8_000  # steps that are tried
NEVER = -1e4  # the logit of a token that no sampler draws
KNOWN = (
    "entropy", "entropy_norm", "varentropy", "maxprob", "margin", "mass", "column", "epistemic",
    "logprob", "rank", "chance",
)  # fmt: skip
SAMPLES = ("{", "7", "word", " ", "\n", "!", "")  # one text of each class, and one of none

Row = tuple[tuple[float, int], ...]  # probabilities, falling, and how many tokens have each


class UntriedError(Exception):
    """A guard reads what is not tried."""


@dataclass(frozen=True)
class _Step:
    """One step: a distribution, a candidate of it, and what else a guard may read."""

    row: Row
    vocabulary: int
    group: int  # which of the row the candidate is in
    last: bool  # whether it is the last of its group
    chance: float
    text: str
    kind: str
    shift: float  # of the raw logits against ln p

    @cached_property
    def entropy(self) -> float:
        """The entropy of the row."""
        found = -sum(n * p * log(p) for p, n in self.row if p > 0.0)
        return min(max(found, 0.0), log(self.vocabulary))

    def top(self, k: int) -> Iterator[tuple[float, int]]:
        """Yield the k largest probabilities, with how many tokens have each."""
        for p, n in self.row:
            if k > 0:
                yield p, min(n, k)
            k -= n

    def signal(self, of: SignalOf) -> float:
        """Return the value of a signal."""
        first = self.row[0][0]
        p = self.row[self.group][0]
        k = of.args[0] if of.args and isinstance(of.args[0], int) else 1
        match of.name:
            case "entropy":
                return self.entropy
            case "entropy_norm":
                return self.entropy / log(self.vocabulary) if self.vocabulary > 1 else 0.0
            case "varentropy":
                return sum(n * q * (log(q) + self.entropy) ** 2 for q, n in self.row if q > 0.0)
            case "maxprob":
                return first
            case "margin":
                return 2.0 * first - sum(q * n for q, n in self.top(2))
            case "mass":
                return min(1.0, sum(q * n for q, n in self.top(k)))
            case "column":
                return 1.0 / (1.0 + exp(-min(max(self._logit(p), -700.0), 700.0)))
            case "epistemic":
                return k / (sum(n * max(self._logit(q), 1e-6) for q, n in self.top(k)) + k)
            case "logprob":
                return log(p)
            case "rank":
                before = sum(n for _, n in self.row[: self.group])
                return before + (self.row[self.group][1] if self.last else 1)
            case _:
                return self.chance

    def _logit(self, p: float) -> float:
        return log(p) + self.shift if p > 0.0 else NEVER

    def value(self, expr: Expr) -> bool | float | str:
        """Return the value of an expression that asks nothing of the past."""
        match expr:
            case Lit():
                return expr.value
            case SignalOf(name=name) if name in KNOWN:
                return self.signal(expr)
            case TokenIs():
                return self.text in expr.texts
            case ClassOf():
                return self.kind == expr.name
            case Comparison():
                return compare(expr.sign, self.value(expr.left), self.value(expr.right))
            case Arithmetic():
                left, right = self.value(expr.left), self.value(expr.right)
                return arithmetic(expr.sign, float(left), float(right))
            case Every():
                return all(self.value(part) for part in expr.of)
            case Some():
                return any(self.value(part) for part in expr.of)
            case Negation():
                return not self.value(expr.of)
            case _:
                raise UntriedError


def witnessed(auto: Automaton, holds: Sequence[Expr], fails: Sequence[Expr] = ()) -> bool:
    """Return whether a step was found on which all of `holds` are true and none of `fails` is."""
    values = {decl.name: decl.value for decl in auto.params}
    asked = [(_fixed(expr, values), True) for expr in holds]
    asked += [(_fixed(expr, values), False) for expr in fails]
    parts = [part for expr, _ in asked for part in walk(expr)]
    try:
        return any(
            all(step.value(expr) is value for expr, value in asked)
            for step in islice(_steps(auto.vocabulary, parts), MOST)
        )
    except UntriedError:
        return False


def _fixed(expr: Expr, values: dict[str, float | bool]) -> Expr:
    """Return an expression with each param at its value."""

    def change(part: Expr) -> Expr:
        return Lit(values[part.name], part.unit) if isinstance(part, ParamOf) else part

    return rewrite(expr, change)


def _steps(vocabulary: int, parts: Sequence[Expr]) -> Iterator[_Step]:
    """Yield steps, those that differ only in what no guard reads once."""
    names = {part.name for part in parts if isinstance(part, SignalOf)}
    numbers = sorted(
        {float(p.value) for p in parts if isinstance(p, Lit) and not isinstance(p.value, str)}
    )
    draws = [0.0, 0.5, 0.999]
    draws += [x + by for x in numbers for by in (0.0, -1e-3, 1e-3) if 0.0 <= x + by < 1.0]
    texts = [(text, lexical_class(text)) for text in SAMPLES] + [("<end>", "special")]
    texts += [(t, lexical_class(t)) for p in parts if isinstance(p, TokenIs) for t in p.texts]
    asks_text = any(isinstance(part, (TokenIs, ClassOf)) for part in parts)
    raw = names & {"column", "epistemic"}
    for row in _rows(vocabulary, numbers):
        drawn = [group for group, (p, _) in enumerate(row) if p > 0.0]
        chosen = [
            (g, last) for g in (drawn[0], drawn[len(drawn) // 2], drawn[-1]) for last in (0, 1)
        ]
        for (group, last), draw, (text, kind), shift in product(
            dict.fromkeys(chosen) if names & {"logprob", "rank", "column"} else chosen[:1],
            draws if "chance" in names else draws[1:2],
            texts if asks_text else texts[:1],
            (0.0, 10.0, 25.0, 60.0, -10.0) if raw else (0.0,),
        ):
            yield _Step(row, vocabulary, group, bool(last), draw, text, kind, shift)


def _rows(vocabulary: int, numbers: Sequence[float]) -> Iterator[Row]:
    """Yield distributions over a vocabulary."""
    widths = sorted({min(n, vocabulary) for n in (*range(1, 9), *(1 << k for k in range(4, 25)))})
    yield ((1.0, 1),)
    yield from (((1.0 / n, n),) for n in widths)
    tops = {0.999, 0.99, 0.03, 0.01, *(k / 20 for k in range(1, 20))}
    tops |= {x + by for x in numbers for by in (0.0, -1e-3, 1e-3) if 0.0 < x + by < 1.0}
    for top in sorted(tops):
        yield from _topped(top, [n for n in widths if n < vocabulary])
        yield from _topped(top, _spread(top, numbers, vocabulary))
    for q in (0.3, 0.6, 0.9):  # falling
        powers = [q**k for k in range(min(vocabulary, 60))]
        yield tuple((p / sum(powers), 1) for p in powers)
    random = Random(0)
    while vocabulary > 2:
        first = random.choice((random.random(), *sorted(tops)))
        second = min(first, 1.0 - first) * random.choice((random.random(), 0.999, 1e-3))
        rest = 1.0 - first - second
        n = min(vocabulary - 2, round(exp(random.uniform(0.0, log(vocabulary)))))
        if 0.0 < rest / n <= second:
            yield (first, 1), (second, 1), (rest / n, n)


def _topped(top: float, widths: Sequence[int]) -> Iterator[Row]:
    """Yield rows of one token of a probability, with all the rest spread over n others."""
    for n in widths:
        if (1.0 - top) / n <= top:
            yield (top, 1), ((1.0 - top) / n, n)


def _spread(top: float, numbers: Sequence[float], vocabulary: int) -> list[int]:
    """Return over how many tokens the rest is spread where the entropy is about some number."""
    rest = 1.0 - top
    own = -top * log(top) - rest * log(rest)
    logs = [(x + by - own) / rest for x in numbers for by in (-0.2, -0.02, 0.02, 0.2)]
    widths = {round(exp(x)) for x in logs if 0.0 <= x < log(vocabulary)}
    return sorted(n for n in widths if n < vocabulary)
