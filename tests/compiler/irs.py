"""Small automata for tests of passes, written without a parser."""

from tokenrouter.compiler import ir
from tokenrouter.compiler.expr import Arithmetic, Comparison, Every, Lit, ParamOf, SignalOf, Some
from tokenrouter.diagnostics import Span

ENTROPY, MAXPROB, MARGIN = SignalOf("entropy"), SignalOf("maxprob"), SignalOf("margin")
POSITION = SignalOf("position")


def at(line):
    return Span(100 * line, 100 * line + 9, line, 1, line, 10)


def num(value, unit="number"):
    return Lit(float(value), unit)


def cmp(left, sign, right):
    return Comparison(sign, *(num(x) if isinstance(x, (int, float)) else x for x in (left, right)))


def both(*parts):
    return Every(parts)


def either(*parts):
    return Some(parts)


def plus(left, right):
    return Arithmetic("+", left, right)


def param(name, value, low=None, high=None, unit="nats"):
    return ir.ParamDecl(name, unit, float(value), at(1), low, high), ParamOf(name, unit)


COMMIT = (True, ir.Stay())
STOP = (True, ir.Stop())


def then(model):
    return (True, ir.To(model))


def retry(model):
    return (False, ir.To(model))


def borrow(model, n, until=None, keep=False):
    most = num(n, "count") if isinstance(n, (int, float)) else n
    return (keep, ir.Borrow(model, most, until))


def mix(**weights):
    return (True, ir.Mix(tuple(weights.items())))


def share(kind, model, bound, measure="share"):
    return ir.ClaimDecl(kind, measure, model, bound, at(90))


def automaton(*states, start=None, params=(), claims=(), fallback=None, vocabulary=1000, vars=()):
    """Return an automaton from states as `("small", (guard, action), ...)`; a guard of None is `otherwise`."""
    line, built = 10, []
    for name, *rules in states:
        made = []
        for guard, (keep, go) in rules:
            text = f"{'otherwise' if guard is None else f'when {guard}'} -> {'keep' if keep else 'drop'} {go}"
            made.append(ir.Rule(guard, keep, go, at(line), text))
            line += 1
        built.append(ir.State(name, tuple(made), at(line)))
    models = tuple(ir.ModelDecl(state.model, f"models/{state.model}", at(2)) for state in built)
    go = start if isinstance(start, ir.Mix) else ir.To(start or models[0].name)
    return ir.Automaton(
        policy="p",
        models=models,
        start=(ir.StartRule(None, go, at(5)),),
        states=tuple(built),
        span=at(3),
        params=tuple(params),
        vars=tuple(vars),
        claims=tuple(claims),
        fallback=fallback,
        vocabulary=vocabulary,
    )


def r_stitch(**more):
    decl, tau = param("tau", 2, 0, 6)
    return automaton(
        ("small", (cmp(ENTROPY, ">", tau), retry("large")), (None, COMMIT)),
        ("large", (cmp(ENTROPY, "<=", tau), then("small")), (None, COMMIT)),
        params=(decl,),
        **more,
    )


def r2r(n=1, **more):
    decl, tau = param("tau", 2, 0, 6)
    return automaton(
        ("small", (cmp(ENTROPY, ">", tau), borrow("large", n)), (None, COMMIT)),
        ("large",),
        params=(decl,),
        **more,
    )
