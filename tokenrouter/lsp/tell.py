"""Hover, signature help and inlay hints: what a name, a rule or a number means."""

from __future__ import annotations

import bisect
import os
from collections.abc import Collection, Iterator, Mapping

from lsprotocol import types as t

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.names import usage
from tokenrouter.dsl.scope import Entry, snake
from tokenrouter.dsl.units import noun
from tokenrouter.lsp.book import Document
from tokenrouter.lsp.shelf import Part
from tokenrouter.lsp.uses import at, nodes
from tokenrouter.lsp.words import PROPERTIES, WORDS, builtin
from tokenrouter.signals import SIGNALS, WINDOWS

_SUFFIX = {"nats": " nats", "nats^2": " nats^2", "ms": " ms"}
_NEVER = {
    "TR2301": "never fires",
    "TR2302": "never fires: earlier rules cover it",
    "TR2303": "always fires where it is asked",
    "TR2305": "is never reached: the rules before it cover every step",
}


def hover(document: Document, found: tuple[Diagnostic, ...], offset: int) -> t.Hover | None:
    """Return what there is to say of the place at an offset."""
    tree = document.tree
    use = at(document.uses, offset)
    if use is not None:
        text = _name(document, use.kind, use.token.text)
        if text is not None:
            place = document.places.range(use.token.start, use.token.end)
            return t.Hover(t.MarkupContent(t.MarkupKind.Markdown, text), place)
    token = bisect.bisect_right(tree.tokens.starts, offset) - 1
    word = tree.tokens.text(token)
    if word not in WORDS:
        return None
    text = f"**{word}**: {WORDS[word]}"
    if word in ("when", "otherwise"):
        text += _rule(document, found, tree.tokens.starts[token])
    place = document.places.range(tree.tokens.starts[token], tree.tokens.end(token))
    return t.Hover(t.MarkupContent(t.MarkupKind.Markdown, text), place)


def _name(document: Document, kind: str, name: str) -> str | None:
    if kind == "property":
        return f"**{name}**: {PROPERTIES[name]}" if name in PROPERTIES else None
    if kind == "policy":
        return _policy(document, name)
    if kind not in ("name", "class") or (kind == "class" and name != "class"):
        return None
    entry = document.scope.get(name)
    if entry is None:
        return builtin(name)
    text = declared(entry, document.path)
    if isinstance(entry.hir, hir.Model):
        from tokenrouter.lsp.worth import weighed  # noqa: PLC0415 numpy takes long to import

        text += "\n\n" + weighed(entry.hir, os.path.dirname(entry.tree.source.name))
    return text


def declared(entry: Entry, path: str) -> str:
    """Return what a declaration says, as Markdown."""
    tree = entry.tree
    lines = [f"```route\n{tree.one_line(entry.node.start, entry.node.end)}\n```"]
    match entry.hir:
        case hir.Model():
            lines.append(f"weights `{entry.hir.use}`, cost {entry.hir.cost:g}, {entry.hir.dtype}")
        case hir.Param():
            lines.append(f"a param in {noun(entry.hir.unit)}{_bounds(entry.hir)}")
            if entry.hir.value != entry.hir.declared:
                lines.append(f"set to {entry.hir.value} here")
        case hir.Var():
            lines.append(f"a variable of the request, {noun(entry.hir.unit)}")
        case hir.Head():
            lines.append(f"a head of kind `{entry.hir.kind}` at `{entry.hir.model}`: a probability")
        case hir.DerivedSignal():
            lines.append(f"a derived signal: {noun(entry.hir.of.unit)}")
        case None:
            pass
    if entry.imported:
        lines.append(f"from `{tree.source.name}`")
    return "\n\n".join(lines)


def _bounds(param: hir.Param) -> str:
    if param.low is None or param.high is None:
        return ", without bounds"
    return f", from {param.low:g} to {param.high:g}"


def _policy(document: Document, name: str) -> str | None:
    for policy in document.resolved.policies:
        if policy.name == snake(name):
            models = ", ".join(f"`{b.model}`" for b in policy.blocks if b.rules)
            lines = [f"**policy {name}**: rules at {models}"]
            lines += [f"{c.kind} {c.measure}({c.model}) <= {c.bound:g}" for c in policy.claims]
            return "\n\n".join([*lines, f"objective {policy.objective}"])
    return None


def _rule(document: Document, found: tuple[Diagnostic, ...], start: int) -> str:
    """Return whether the rule that begins at an offset can fire, as far as the passes have looked, and how often it may."""
    if any(d.severity == "error" and d.code not in _NEVER for d in found):
        return ""
    rules = (n for n in nodes(document.tree.file) if isinstance(n, (ast.Rule, ast.StartRule)))
    rule = next((n for n in rules if n.start == start), None)
    if rule is None:
        return ""
    for diagnostic in found:
        inside = rule.start <= diagnostic.span.start < rule.end
        if inside and diagnostic.code in _NEVER and diagnostic.span.file == document.path:
            return f"\n\nthis rule {_NEVER[diagnostic.code]}"
    from tokenrouter.lsp.worth import expected  # noqa: PLC0415 numpy takes long to import

    return "\n\n".join(["", "this rule can fire", *expected(document, start)])


def signature(document: Document, offset: int) -> t.SignatureHelp | None:
    """Return how the call around an offset is written, and which argument is being typed."""
    tokens = document.tree.tokens
    real = [i for i in tokens.real if tokens.end(i) <= offset and tokens.kinds[i] != "$END"]
    depth = commas = 0
    for place in range(len(real) - 1, 0, -1):
        kind = tokens.kinds[real[place]]
        if kind in ("LBRACE", "RBRACE", "ARROW"):
            return None
        if kind == "RPAR":
            depth += 1
        elif kind == "COMMA" and not depth:
            commas += 1
        elif kind == "LPAR" and depth:
            depth -= 1
        elif kind == "LPAR":
            name = tokens.text(real[place - 1])
            return _signature(name, commas)
    return None


def _signature(name: str, argument: int) -> t.SignatureHelp | None:
    page = builtin(name)
    if page is None or (name not in WINDOWS and not (name in SIGNALS and SIGNALS[name].args)):
        return None
    label = usage(name)
    inner = label[label.index("(") + 1 : -1].split(", ")
    return t.SignatureHelp(
        [
            t.SignatureInformation(
                label,
                t.MarkupContent(t.MarkupKind.Markdown, page),
                [t.ParameterInformation(part) for part in inner],
            )
        ],
        0,
        min(argument, len(inner) - 1),
    )


def hints(
    document: Document,
    sets: Mapping[str, str],
    within: t.Range,
    windows: Mapping[str, tuple[str, str]] | None = None,
) -> list[t.InlayHint]:
    """Return the units that numbers and derived signals have got, the values that settings give params, and solved windows.

    Of these it is told by model what to show, and what to add where somebody points at it.
    """
    low, high = document.places.offset(within.start), document.places.offset(within.end)
    near = [
        part
        for part, (piece, base) in zip(document.placed, document.parts, strict=True)
        if base + piece.before <= high and low <= base + piece.before + len(piece.text)
    ]
    bases = {piece.name: base for piece, base in document.parts}
    bare = dict(
        zip(
            (part.piece.name for part in near),
            document.shelf.each("bare", near, _bare, placed=False),
            strict=True,
        )
    )
    found: dict[int, t.InlayHint] = {}
    for name, own, label in _labels(document, sets, bare):
        offset = own + bases[name]
        if low <= offset <= high:
            at_ = document.places.position(offset)
            found[offset] = t.InlayHint(at_, label, t.InlayHintKind.Type)
    for name, (label, more) in (windows or {}).items():
        entry = document.scope.get(name, "model")
        base = None if entry is None else bases.get(entry.tree.source.name)
        if entry is not None and base is not None and low <= entry.node.name.end + base <= high:
            at_ = document.places.position(entry.node.name.end + base)
            found[entry.node.name.end + base] = t.InlayHint(at_, label, tooltip=more)
    return [found[offset] for offset in sorted(found)]


def _bare(part: Part) -> frozenset[int]:
    """Return where numbers without a unit end."""
    every = nodes(part.piece.tree.file)
    return frozenset(n.end for n in every if isinstance(n, ast.Quantity) and n.unit is None)


def _labels(
    document: Document, sets: Mapping[str, str], bare: Mapping[str, frozenset[int]]
) -> Iterator[tuple[str, int, str]]:
    """Yield hints of some pieces, by the name of the piece and the offset in its source."""
    given = set(map(snake, sets))
    for entry in document.scope.entries.values():
        name = entry.tree.source.name
        if entry.imported or name not in bare:
            continue
        if isinstance(entry.hir, hir.DerivedSignal):
            yield name, entry.node.name.end, f": {noun(entry.hir.of.unit)}"
        if isinstance(entry.hir, hir.Param) and snake(entry.node.name.text) in given:
            value = entry.hir.value
            if value != entry.hir.declared:
                shown = str(value).lower() if isinstance(value, bool) else f"{value:g}"
                yield name, entry.node.end, f" set to {shown}"
    policies = document.resolved.policies
    signals = {signal.name: signal for policy in policies for signal in policy.signals}
    exprs = [signal.of for signal in signals.values() if signal.span.file in bare]
    for policy in policies:
        exprs += _expressions(policy, bare)
    for expr in exprs:
        for part in hir.walk(expr):
            if not isinstance(part, hir.Const) or part.unit not in _SUFFIX:
                continue
            if part.span.end in bare.get(part.span.file, ()):
                yield part.span.file, part.span.end, _SUFFIX[part.unit]


def _expressions(policy: hir.Policy, near: Collection[str]) -> Iterator[hir.Expr]:
    """Yield the conditions of a policy that stand in some pieces."""
    yield from (s.when for s in policy.start if s.when is not None and s.span.file in near)
    for block in policy.blocks:
        for rule in block.rules if block.span.file in near else ():
            if rule.when is not None:
                yield rule.when
            go = rule.action.go
            if isinstance(go, hir.Borrow) and go.until is not None:
                yield go.until
