"""The guards that `enforce` adds, as the estimates see them: with room under a bound, or without.

A bound is about a request's past, so at one step it holds for all rules that ask for it or for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from tokenrouter.compiler.expr import Arithmetic, Comparison, Every, Expr, SignalOf
from tokenrouter.compiler.fold import FALSE, TRUE, fold
from tokenrouter.compiler.ir import Rule

Room = Mapping[str, float]  # by bounded model: the share of steps at which its bounds leave room


def bounded(part: Expr) -> str:
    """Return the model whose bound a part of a guard is, count(M) + n <= ...; '' where it is none."""
    match part:
        case Comparison(
            sign="<=",
            left=Arithmetic(sign="+", left=SignalOf(name="count", args=(str() as model,))),
        ):
            return model
        case _:
            return ""


def rooms(room: Room) -> Iterator[tuple[float, frozenset[str]]]:
    """Yield the models whose bounds are reached at a step, with the share of such steps.

    One draw decides for all: bounds come to be reached late in a request, and so together.
    """
    cuts = sorted({0.0, *room.values(), 1.0})
    for low, high in pairwise(cuts):
        yield high - low, frozenset(model for model, share in room.items() if share <= low)


def closed(rule: Rule, room: Room, reached: frozenset[str]) -> Rule:
    """Return a rule with what it asks of bounds answered."""
    if rule.source != "enforced" or rule.when is None:
        return rule
    parts = rule.when.of if isinstance(rule.when, Every) else (rule.when,)
    answered = tuple(map(partial(_answer, room, reached), parts))
    return replace(rule, when=fold(Every(answered)))


def _answer(room: Room, reached: frozenset[str], part: Expr) -> Expr:
    model = bounded(part)
    if model not in room:
        return part
    return FALSE if model in reached else TRUE
