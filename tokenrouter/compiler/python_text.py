"""A resolved policy as restricted Python: the other spelling of the same meaning.

Comments above declarations come along; whatever the policy's file said about lay-out does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tokenrouter import lang
from tokenrouter.dsl import hir
from tokenrouter.plan.literal import number, value_text

_BINDS = {hir.AnyOf: 1, hir.AllOf: 2, hir.Not: 3, hir.Compare: 4, hir.TokenIn: 4, hir.ClassIs: 4}


def python_text(policy: hir.Policy) -> str:
    """Return the text of a Python policy file."""
    whole = [comment for comment in policy.comments if comment.anchor == "file"]
    first = [comment.text for comment in whole if comment.place == "above"]
    blocks = [first, list(_declarations(policy)), *map(list, _signals(policy))]
    blocks += [list(_policy(policy))]
    blocks += [list(_test(policy, at, test)) for at, test in enumerate(policy.tests)]
    last = [c.text for c in policy.comments if not _has_place(policy, c.anchor)]
    blocks += [[*last, *(comment.text for comment in whole if comment.place == "end")]]
    body = "\n\n\n".join("\n".join(block) for block in blocks if block)
    # Names that nothing uses would be flagged in any editor.
    asked = {name: rf"\b{name}[(.]|@{name}\n" for name in lang.__all__} | {"ANY": r"@at\(ANY\)"}
    used = sorted(name for name, pattern in asked.items() if re.search(pattern, body))
    return f"from tokenrouter.lang import {', '.join(used)}\n\n{body}\n"


def _above(policy: hir.Policy, anchor: str, indent: str = "") -> Iterator[str]:
    for comment in policy.comments:
        if comment.anchor == anchor:
            yield indent + comment.text


def _has_place(policy: hir.Policy, anchor: str) -> bool:
    """Return whether what a comment belongs to is written; it stands at the end of the file otherwise."""
    kind, _, rest = anchor.partition(" ")
    match kind:
        case "file" | "policy" | "claim" | "objective" | "fallback" | "template":
            return True
        case "start":
            return True
        case "model" | "head" | "param" | "var" | "signal":
            heads = policy.heads + policy.idle_heads
            of = (policy.models, heads, policy.params, policy.vars, policy.signals)
            return any(rest == item.name for items in of for item in items)
        case "at" | "rule":
            model = rest.split()[0]
            return any(
                b.rules and model == ("any" if b.from_any else b.model) for b in policy.blocks
            )
        case "test" | "case":
            return int(rest.split()[0]) < len(policy.tests)
        case _:
            return False


def _declarations(policy: hir.Policy) -> Iterator[str]:
    for model in policy.models:
        yield from _above(policy, f"model {model.name}")
        more = f", cost={number(model.cost)}"
        more += f', dtype="{model.dtype}"' if model.dtype != "float32" else ""
        more += f', quantize="{model.quantize}"' if model.quantize != "none" else ""
        parallel = model.tensor_parallel
        more += f", tensor_parallel={parallel}" if parallel != 1 else ""
        yield f"{model.name} = model({_quote(model.use)}{more})"
    for head in (*policy.heads, *policy.idle_heads):
        yield from _above(policy, f"head {head.name}")
        source = f"python={_quote(head.file)}" if head.kind == "python" else _quote(head.file)
        kind = "" if head.kind == "python" else f', kind="{head.kind}"'
        reads = ", ".join(map(_quote, head.reads))
        yield f"{head.name} = head({source}, of={head.model}, reads=({reads},){kind})"
    for param in policy.params:
        yield from _above(policy, f"param {param.name}")
        within = ""
        if param.low is not None and param.high is not None:
            within = f", within=({number(param.low)}, {number(param.high)})"
        yield f'{param.name} = param({_value(param.value)}, unit="{param.unit}"{within})'
    for var in policy.vars:
        yield from _above(policy, f"var {var.name}")
        yield f'{var.name} = var({_value(var.value)}, unit="{var.unit}")'


def _signals(policy: hir.Policy) -> Iterator[list[str]]:
    for signal in policy.signals:
        yield [
            *_above(policy, f"signal {signal.name}"),
            "@signal",
            f"def {signal.name}(step):",
            f"    return {_expr(signal.of, 'step')}",
        ]


def _policy(policy: hir.Policy) -> Iterator[str]:
    yield from _above(policy, "policy")
    if len(policy.start) == 1:
        yield from _above(policy, "start")
    claims_ = [f"claim {at}" for at in range(len(policy.claims))]
    for anchor in (*claims_, "objective", "fallback", "template"):
        yield from _above(policy, anchor)
    given = []
    if len(policy.start) == 1:
        given.append(f"start={_choice(policy.start[0].go)}")
    claims = [
        f"{claim.kind}({claim.measure}({claim.model}) <= {number(claim.bound)})"
        for claim in policy.claims
    ]
    given += [f"claims=[{', '.join(claims)}]"] if claims else []
    if policy.objective.kind != "throughput" or policy.objective.speed is not None:
        given.append(f'objective="{policy.objective.kind}"')
    if policy.objective.speed is not None:
        given.append(f"speed={number(policy.objective.speed)}")
    given += [f"fallback={policy.fallback}"] if policy.fallback else []
    given += [f"template_from={policy.template_from}"] if policy.template_from else []
    yield f"@policy({', '.join(given)})"
    yield f"class {_class_name(policy.name)}:"
    methods = [list(_start(policy))] if len(policy.start) > 1 else []
    methods += [
        list(_block(policy, b.model, b)) for b in policy.blocks if b.rules and not b.from_any
    ]
    rest = next((block for block in policy.blocks if block.from_any), None)
    methods += [list(_block(policy, "any", rest))] if rest is not None else []
    yield "\n\n".join("\n".join(method) for method in methods)


def _class_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _start(policy: hir.Policy) -> Iterator[str]:
    yield from _above(policy, "start", "    ")
    yield "    @start"
    yield "    def first(request):"
    for index, rule in enumerate(policy.start):
        indent = "        "
        yield from _above(policy, f"start rule {index}", indent)
        if rule.when is not None:
            yield f"{indent}if {_expr(rule.when, 'request')}:"
            indent += "    "
        yield f"{indent}return {_choice(rule.go)}"


def _block(policy: hir.Policy, name: str, block: hir.Block) -> Iterator[str]:
    yield from _above(policy, f"at {name}", "    ")
    yield f"    @at({'ANY' if name == 'any' else name})"
    yield f"    def {name}_step(step):"
    for index, rule in enumerate(block.rules):
        indent = "        "
        yield from _above(policy, f"rule {name} {index}", indent)
        if rule.when is not None:
            yield f"{indent}if {_expr(rule.when, 'step')}:"
            indent += "    "
        yield f"{indent}return {_action(rule.action)}"


def _action(action: hir.Action) -> str:
    sets = ", ".join(f"{item.var}: {_expr(item.value, 'step')}" for item in action.sets)
    more = f"set={{{sets}}}" if sets else ""
    match action.go:
        case hir.Stay():
            return f"commit({more})"
        case hir.Stop():
            return f"stop({more})"
        case hir.Borrow() if not action.keep:
            borrow = _borrow(action.go)
            return f"{borrow[:-1]}, {more})" if more else borrow
        case hir.To() if not action.keep:
            return f"retry({', '.join(part for part in (action.go.model, more) if part)})"
        case go:
            then = _borrow(go) if isinstance(go, hir.Borrow) else _choice(go)
            return f"commit({', '.join(part for part in (f'then={then}', more) if part)})"


def _borrow(go: hir.Borrow) -> str:
    most = _expr(go.most, "step")
    if go.until is None:
        return f"borrow({go.model}, {most})"
    return f"borrow({go.model}, until=lambda s: {_expr(go.until, 's')}, most={most})"


def _choice(go: hir.To | hir.Mix) -> str:
    if isinstance(go, hir.To):
        return go.model
    weights = go.given or [weight for _, weight in go.weights]
    named = zip((model for model, _ in go.weights), weights, strict=True)
    return "mix({" + ", ".join(f"{model}: {number(w)}" for model, w in named) + "})"


def _test(policy: hir.Policy, at: int, test: hir.Test) -> Iterator[str]:
    yield from _above(policy, f"test {at}")
    yield "test("
    yield f"    {_quote(test.name)},"
    yield f"    of={_class_name(policy.name)},"
    yield "    cases=["
    for index, case in enumerate(test.cases):
        yield from _above(policy, f"case {at} {index}", "        ")
        parts = [f"at={case.model}"] if case.model is not None else []
        given = ", ".join(map(_given, case.given))
        parts += [f"given={{{given}}}"] if given else []
        choice = case.expect.go
        if case.model is None and isinstance(choice, (hir.To, hir.Mix)):
            parts.append(f"expect={_choice(choice)}")
        else:
            parts.append(f"expect={_action(case.expect)}")
        yield f"        case({', '.join(parts)}),"
    yield "    ],"
    yield ")"


def _given(item: hir.Given) -> str:
    """Return what a case supposes, as an entry of a dict."""
    match item.of:
        case hir.TokenIn(texts=(text,)):
            return f'"token": {_quote(text)}'
        case hir.ClassIs(name=name):
            return f'"token_class": "{name}"'
        case _:
            return f"{_key(item.of)}: {_value(item.value)}"


def _key(of: hir.Expr) -> str:
    """Return what a case supposes something of: a name in quotes, or a call."""
    match of:
        case hir.SignalRef(args=()) | hir.HeadRef() | hir.ParamRef() | hir.VarRef() | hir.Derived():
            return f'"{of.name}"'
        case hir.RequestField():
            return f'"request.{of.name}"'
        case hir.SignalRef(args=(int(n),)):
            return f'"{of.name}({n})"'
        case hir.SignalRef():
            return f"{of.name}({', '.join(map(str, of.args))})"
        case _:
            return _expr(of, "Step")


def _quote(text: str) -> str:
    """Return text as a literal that Python reads."""
    return json.dumps(text, ensure_ascii=False)


def _value(value: hir.Value) -> str:
    if isinstance(value, bool):
        return str(value)
    return _quote(value) if isinstance(value, str) else value_text(value)


def _expr(expr: hir.Expr, step: str) -> str:
    """Return an expression over a step of the given name."""
    match expr:
        case hir.Compare():
            return f"{_inner(expr.left, 5, step)} {expr.sign} {_inner(expr.right, 5, step)}"
        case hir.Arith():
            level = 5 if expr.sign in "+-" else 6
            right = _inner(expr.right, level + 1, step)
            return f"{_inner(expr.left, level, step)} {expr.sign} {right}"
        case hir.AllOf():
            return " and ".join(_inner(item, 3, step) for item in expr.of)
        case hir.Not(of=hir.TokenIn() | hir.ClassIs() as of):
            return _asked(of, step, negated=True)
        case hir.Not(of=hir.AnyOf() as of) if _classes(of):
            return f"{step}.token_class not in {{{', '.join(map(_quote, _classes(of)))}}}"
        case hir.AnyOf() if _classes(expr):
            return f"{step}.token_class in {{{', '.join(map(_quote, _classes(expr)))}}}"
        case hir.AnyOf():
            return " or ".join(_inner(item, 2, step) for item in expr.of)
        case hir.Not():
            return f"not {_inner(expr.of, 9, step)}"
        case hir.Window():
            name = "max_over" if expr.kind == "max" else expr.kind
            return f"{name}({_expr(expr.of, step)}, {expr.n})"
        case _:
            return _leaf(expr, step)


def _leaf(expr: hir.Expr, step: str) -> str:
    match expr:
        case hir.Const():
            return _value(expr.value)
        case hir.ParamRef() | hir.VarRef():
            return expr.name
        case hir.Derived() | hir.HeadRef():
            return f"{expr.name}({step})"
        case hir.SignalRef(args=()):
            return f"{step}.{expr.name}"
        case hir.SignalRef():
            return f"{step}.{expr.name}({', '.join(map(str, expr.args))})"
        case hir.RequestField():
            return f"{step}.{expr.name}" if step == "request" else f"{step}.request.{expr.name}"
        case hir.TokenIn() | hir.ClassIs():
            return _asked(expr, step)
        case _:
            raise AssertionError(expr)


def _asked(expr: hir.TokenIn | hir.ClassIs, step: str, *, negated: bool = False) -> str:
    """Return a question of the candidate."""
    equal, among = ("!=", "not in") if negated else ("==", "in")
    if isinstance(expr, hir.ClassIs):
        return f'{step}.token_class {equal} "{expr.name}"'
    if len(expr.texts) == 1:
        return f"{step}.token {equal} {_quote(expr.texts[0])}"
    return f"{step}.token {among} {{{', '.join(map(_quote, expr.texts))}}}"


def _classes(expr: hir.AnyOf) -> list[str]:
    """Return the classes that `class in {...}` names; none where an `or` asks for more."""
    names: list[str] = [item.name for item in expr.of if isinstance(item, hir.ClassIs)]
    return names if len(names) == len(expr.of) else []


def _inner(expr: hir.Expr, level: int, step: str) -> str:
    """Return an operand, in brackets where it binds looser than its place."""
    own = _BINDS.get(type(expr), 9)
    if isinstance(expr, hir.AnyOf) and _classes(expr):
        own = 4
    if isinstance(expr, hir.Not) and isinstance(expr.of, (hir.TokenIn, hir.ClassIs)):
        own = 4
    if isinstance(expr, hir.Arith):
        own = 5 if expr.sign in "+-" else 6
    text = _expr(expr, step)
    return text if own >= level else f"({text})"
