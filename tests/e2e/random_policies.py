"""Random policies: any guard over any signal, any action, over two or three models, in the compiler's IR.

Guards compare signals with numbers in the middle of their range, so that either side is common.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from tests.factories import tokenizer, vocabulary_size
from tokenrouter.compiler import ir
from tokenrouter.compiler.expr import (
    Aggregate,
    Arithmetic,
    ClassOf,
    Comparison,
    Every,
    Expr,
    FieldOf,
    HeadOf,
    Lit,
    Negation,
    ParamOf,
    SignalOf,
    Some,
    TokenIs,
    VarOf,
)
from tokenrouter.diagnostics import Span
from tokenrouter.dsl.declare import TAKES
from tokenrouter.signals import CLASSES

HERE = Span(0, 0, 1, 1, 1, 1)
NAMES = ("small", "large", "half")
TAU = ir.ParamDecl("tau", "nats", 1.2, HERE, 0.0, 9.0)
TURNS = ir.VarDecl("turns", "count", 2.0, HERE)
LEVEL = ir.VarDecl("level", "number", 0.5, HERE)

# By signal: its unit and numbers that cut its range. None falls on a value that rounding could reach.
LOGITS = {
    "entropy": ("nats", (0.31, 0.87, 1.27, 1.91)),
    "entropy_norm": ("share", (0.11, 0.21, 0.33)),
    "varentropy": ("nats^2", (0.83, 1.71)),
    "maxprob": ("prob", (0.37, 0.61, 0.83)),
    "margin": ("prob", (0.13, 0.41, 0.71)),
    "mass": ("prob", (0.71, 0.93)),
    "logprob": ("nats", (-2.03, -1.01, -0.29)),
    "rank": ("count", (1.5, 2.5)),
    "aleatoric": ("number", (1.37, 1.93)),
    "epistemic": ("number", (0.31, 0.47)),
    "column": ("prob", (0.51, 0.83)),
}
STATE = {
    "position": ("count", (2.0, 5.0, 9.0)),
    "since_switch": ("count", (1.0, 2.0, 4.0)),
    "switches": ("count", (1.0, 3.0)),
    "prompt_tokens": ("count", (6.0, 12.0)),
    "count": ("count", (2.0, 5.0)),
    "share": ("share", (0.25, 0.5)),
    "chance": ("prob", (0.25, 0.5, 0.75)),
}

# By kind: numbers that cut the range of a tiny head.
HEADS = {"linear": (0.31, 0.63), "mlp": (0.27, 0.71), "r2r": (0.33, 0.57)}


@st.composite
def signals(draw: st.DrawFn, names: tuple[str, ...], here: str) -> tuple[Expr, str, float]:
    """A signal, its unit, and a number to compare it with."""
    if draw(st.integers(0, 5)) == 0:
        kind = draw(st.sampled_from(sorted(HEADS)))
        return HeadOf(f"{kind}_of_{here}"), "prob", draw(st.sampled_from(HEADS[kind]))
    table = draw(st.sampled_from((LOGITS, STATE)))
    name = draw(st.sampled_from(sorted(table)))
    unit, cuts = table[name]
    args: tuple[int | str, ...] = ()
    if name in ("mass", "aleatoric", "epistemic"):
        args = (draw(st.sampled_from((2, 5, 10))),)
    elif name == "column":
        args = (draw(st.integers(4, vocabulary_size() - 1)),)
    elif name in ("count", "share"):
        args = (draw(st.sampled_from(names)),)
    return SignalOf(name, args), unit, draw(st.sampled_from(cuts))


@st.composite
def comparisons(draw: st.DrawFn, names: tuple[str, ...], here: str) -> Expr:
    """A comparison of a signal or a window over it with a number, a param, or a variable."""
    left, unit, cut = draw(signals(names, here))
    if draw(st.integers(0, 3)) == 0:
        kind = draw(st.sampled_from(("mean", "ewma", "max")))
        left = Aggregate(kind, left, draw(st.integers(1, 4)))
    right: Expr = Lit(cut, unit)
    if unit == "nats" and cut > 0 and draw(st.booleans()):
        right = ParamOf("tau", "nats")
    if unit == "count" and draw(st.integers(0, 3)) == 0:
        right = VarOf("turns", "count")
    if draw(st.integers(0, 4)) == 0:
        sign = draw(st.sampled_from("+-*/"))
        right = Arithmetic(sign, right, Lit(draw(st.sampled_from((0.0, 0.7, 1.3))), "number"))
    return Comparison(draw(st.sampled_from(("<", "<=", ">", ">="))), left, right)


TIER = FieldOf("tier", "free", "text")
TIERS = st.sampled_from(("free", "paid")).map(lambda tier: Lit(tier, "text"))


@st.composite
def texts(draw: st.DrawFn) -> Expr:
    """Whether the candidate is one of a third of the vocabulary or of a class, or the client one of a tier."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return Comparison(draw(st.sampled_from(("==", "!="))), TIER, draw(TIERS))
    if kind == 1:
        return ClassOf(draw(st.sampled_from(CLASSES)))
    first = draw(st.integers(0, 2))
    ids = range(4 + first, vocabulary_size(), 3)
    return TokenIs(tuple(sorted({tokenizer().decode([token]) for token in ids} - {""})))


@st.composite
def guards(draw: st.DrawFn, names: tuple[str, ...], here: str) -> Expr:
    """One to three comparisons, joined."""
    compared = comparisons(names, here)
    atoms = st.one_of(compared, compared, compared, texts())
    parts = tuple(draw(st.lists(atoms, min_size=1, max_size=3)))
    parts = tuple(Negation(part) if draw(st.integers(0, 4)) == 0 else part for part in parts)
    if len(parts) == 1:
        return parts[0]
    return Every(parts) if draw(st.booleans()) else Some(parts)


@st.composite
def lengths(draw: st.DrawFn) -> Expr:
    """How many tokens a borrowed stay has."""
    options = st.sampled_from((Lit(1.0, "count"), Lit(2.0, "count"), Lit(4.0, "count")))
    grown = Arithmetic("-", SignalOf("position"), Lit(3.0, "count"))
    return draw(st.one_of(options, st.sampled_from((VarOf("turns", "count"), grown))))


@st.composite
def moves(draw: st.DrawFn, here: str, names: tuple[str, ...]) -> tuple[bool, ir.Go]:
    """What a rule does: whether the candidate is kept, and who is next."""
    others = [name for name in names if name != here]
    kind = draw(st.sampled_from(("stay", "then", "retry", "borrow", "borrow", "mix", "stop")))
    other = draw(st.sampled_from(others))
    match kind:
        case "then":
            return True, ir.To(other)
        case "retry":
            return False, ir.To(other)
        case "borrow":
            until = draw(st.none() | guards(names, other))
            return draw(st.booleans()), ir.Borrow(other, draw(lengths()), until)
        case "mix":
            return True, draw(mixes(names))
        case "stop" if draw(st.integers(0, 3)) == 0:
            return True, ir.Stop()
        case _:
            return True, ir.Stay()


@st.composite
def mixes(draw: st.DrawFn, names: tuple[str, ...]) -> ir.Mix:
    """Weights that sum to 1."""
    raw = [draw(st.integers(1, 4)) for _ in names]
    return ir.Mix(tuple((name, w / sum(raw)) for name, w in zip(names, raw, strict=True)))


@st.composite
def assignments(draw: st.DrawFn, names: tuple[str, ...], here: str) -> tuple[ir.Assign, ...]:
    """What a rule that fired writes into the variables."""
    turned = Arithmetic("-", Lit(4.0, "count"), VarOf("turns", "count"))
    level = Arithmetic("+", VarOf("level", "number"), draw(signals(names, here))[0])
    options = (ir.Assign("turns", turned), ir.Assign("level", level))
    chosen = draw(st.lists(st.sampled_from(options), max_size=2, unique_by=lambda a: a.var))
    return tuple(chosen)


@st.composite
def states(draw: st.DrawFn, here: str, names: tuple[str, ...]) -> ir.State:
    """A model's rules, the last of them `otherwise`."""
    rules = []
    for last in (False,) * draw(st.integers(0, 3)) + (True,):
        keep, go = draw(moves(here, names))
        when = None if last else draw(guards(names, here))
        sets = draw(assignments(names, here)) if draw(st.integers(0, 3)) == 0 else ()
        rules.append(ir.Rule(when, keep, go, HERE, "", sets))
    return ir.State(here, tuple(rules), HERE)


class Readable(NamedTuple):
    """An automaton that a failing test prints as text."""

    auto: ir.Automaton

    def __repr__(self) -> str:
        return "\n" + str(self.auto)


@st.composite
def policies(draw: st.DrawFn, models: dict[str, Path], heads: dict[str, Path]) -> Readable:
    """A whole policy over the models, which may go round for ever but for the runtime's own bound."""
    names = NAMES[: draw(st.integers(2, 3))]
    starts = st.sampled_from([ir.To(name) for name in names]) | mixes(names)
    prompt = Comparison(">", SignalOf("prompt_tokens"), Lit(9.0, "count"))
    paid = Comparison("==", TIER, Lit("paid", "text"))
    dial = Comparison("<=", ParamOf("tau", "nats"), Lit(1.2, "nats"))
    guarded = draw(st.lists(st.sampled_from((prompt, paid, dial)), max_size=2))
    auto = ir.Automaton(
        policy="random",
        models=tuple(ir.ModelDecl(name, str(models[name]), HERE, "float64") for name in names),
        start=tuple(ir.StartRule(when, draw(starts), HERE) for when in (*guarded, None)),
        states=tuple(draw(states(name, names)) for name in names),
        span=HERE,
        heads=tuple(
            ir.HeadDecl(f"{kind}_of_{name}", kind, str(path), name, TAKES[kind], HERE)
            for name in names
            for kind, path in heads.items()
        ),
        params=(TAU,),
        vars=(TURNS, LEVEL),
    )
    return Readable(auto)
