"""A policy as it was written: one `.route` text with what it imports, and without what only other policies of its files use.

A plan keeps it in its surface. `restated` gives it back with what the plan has otherwise: dials that were set, and paths as
seen from where the plan lies.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator

from tokenrouter.compiler.lower import lower
from tokenrouter.compiler.policy_text import declarations, policy_text
from tokenrouter.compiler.route_text import is_python, laid_out
from tokenrouter.diagnostics import Edit, PolicyError
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.comments import comments
from tokenrouter.dsl.files import parse_any, real_path
from tokenrouter.dsl.lexer import MARK
from tokenrouter.dsl.load import parse_text
from tokenrouter.dsl.parse import Tree, parse
from tokenrouter.dsl.scope import snake
from tokenrouter.dsl.source import Source
from tokenrouter.plan.literal import quote, value_text
from tokenrouter.plan.structs import Plan


def written(resolved: hir.Resolved, policy: hir.Policy) -> str:
    """Return the text of a policy of a file without errors."""
    if is_python(policy):
        return policy_text(policy)
    return laid_out(_Weaver(resolved, policy).file(resolved.file, imported=False))


class _Weaver:
    """Makes one text of a file and what it imports."""

    def __init__(self, resolved: hir.Resolved, policy: hir.Policy) -> None:
        self.texts = {real_path(name): text for name, text in resolved.texts.items()}
        self.policy = policy
        lists = (policy.models, policy.heads, policy.idle_heads, policy.params, policy.vars)
        self.kept = {item.name for items in (*lists, policy.signals) for item in items}
        self.seen: set[str] = set()

    def file(self, name: str, *, imported: bool) -> str:
        """Return the text of one file, with what it imports in the place of each `import`."""
        real = real_path(name)
        if real in self.seen or real not in self.texts:
            return ""
        self.seen.add(real)
        text = self.texts[real].removeprefix(MARK).replace("\r\n", "\n").replace("\r", "\n")
        tree = parse_any(Source.of(name, text))
        if name.endswith(".py"):
            return "\n".join(self._declared(tree))
        parts, at = [], 0
        if tree.file.header is not None:
            at = _with_its_comment(tree, tree.file.header.end)
            start = tree.file.header.start if imported else tree.file.header.end
            parts = [text[:start], text[tree.file.header.end : at]]
        for item in tree.file.items:
            end = _with_its_comment(tree, item.end)
            parts += self._item(name, text[at : item.start], item, text[item.start : end], imported)
            at = end
        return "".join([*parts, text[at:], "\n"])

    def _item(
        self, name: str, above: str, item: ast.Item, text: str, imported: bool
    ) -> Iterator[str]:
        if isinstance(item, ast.Import):
            path = os.path.join(os.path.dirname(name), item.path.text.strip('"'))
            yield f"{above}\n{self.file(path, imported=True)}\n{text[item.end - item.start :]}"
        elif self._keeps(item, imported):
            yield above + text
        else:  # what stands right above it is its own
            yield "\n\n".join(re.split(r"\n[ \t]*\n", above)[:-1]) + "\n\n"

    def _keeps(self, item: ast.Item, imported: bool) -> bool:
        match item:
            case ast.Policy():
                return not imported and snake(item.name.text) == self.policy.name
            case ast.Test():
                return not imported and snake(item.policy.text) == self.policy.name
            case ast.Import():
                return False
            case _:
                return snake(item.name.text) in self.kept

    def _declared(self, tree: Tree) -> list[str]:
        """Return the declarations of a Python file as `.route` text."""
        own = (i for i in tree.file.items if not isinstance(i, (ast.Import, ast.Test)))
        names = {snake(item.name.text) for item in own}
        of = self.policy
        part = hir.Policy(
            name=of.name,
            models=tuple(item for item in of.models if item.name in names),
            start=of.start,
            blocks=(),
            params=tuple(item for item in of.params if item.name in names),
            vars=tuple(item for item in of.vars if item.name in names),
            heads=tuple(item for item in (*of.heads, *of.idle_heads) if item.name in names),
            signals=tuple(item for item in of.signals if item.name in names),
            comments=comments(tree).get("", ()),
            span=of.span,
        )
        return declarations(part)


def _with_its_comment(tree: Tree, end: int) -> int:
    """Return the end of what ends at a place, with a comment behind it on its line."""
    tokens = tree.tokens
    at = bisect_left(tokens.starts, end)
    if tokens.kinds[at] == "SPACE" and "\n" not in tokens.text(at):
        at += 1
    return tokens.end(at) if tokens.kinds[at] == "COMMENT" else end


def restated(plan: Plan) -> str:
    """Return the policy of a plan as it was written, with the plan's own params and paths; '' where it holds none."""
    text = plan.surface.source
    tree = parse(Source.of("policy.route", text))
    if not text or tree.problems:
        return ""
    edits = list(_edits(tree, plan))
    for edit in sorted(edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return laid_out(text) if edits else text


def _edits(tree: Tree, plan: Plan) -> Iterator[Edit]:
    """Yield what makes a text say what the plan does of params, models and heads."""
    try:
        policy = parse_text(tree.source.text, one=True).only()
    except PolicyError:
        return
    values = {param.name: value_text(param.value) for param in plan.params}
    said = {param.name: value_text(param.value) for param in policy.params}
    paths = {item.name: item.use for item in plan.models} | {h.name: h.file for h in plan.heads}
    for item in tree.file.items:
        name = "" if isinstance(item, (ast.Import, ast.Test)) else snake(item.name.text)
        if isinstance(item, ast.Param) and item.value is not None and name in values:
            if values[name] != said.get(name):
                yield Edit(tree.source.span(item.value.start, item.value.end), values[name])
        elif isinstance(item, (ast.Model, ast.Head)) and name in paths:
            for one in item.properties:
                if one.name.text in ("use", "file", "python") and isinstance(
                    one.value, ast.Literal
                ):
                    place = tree.source.span(one.value.start, one.value.end)
                    if tree.source.text[place.start : place.end] != quote(paths[name]):
                        yield Edit(place, quote(paths[name]))


def declares(text: str, plan: Plan) -> bool:
    """Return whether a text declares what a plan holds, its rules aside."""
    policy = parse_text(text, one=True).only()
    auto = lower(policy)
    names = [model.name for model in plan.models]  # of those never reached a plan says nothing
    read = {head.name for head in plan.heads}
    kinds = ["enforce" if claim.status == "enforced" else "guarantee" for claim in plan.claims]
    told = (
        policy.name,
        {
            m.name: (m.use, m.dtype, m.quantize, m.tensor_parallel, m.cost)
            for m in policy.models
            if m.name in names
        },
        {h.name: (h.kind, h.file, h.model, list(h.reads)) for h in policy.heads if h.name in read},
        [(p.name, p.unit, p.value, p.low, p.high) for p in policy.params],
        [(v.name, v.unit, v.value) for v in policy.vars],
        [(c.kind, c.text) for c in auto.claims],
        auto.objective,
    )
    holds = (
        plan.policy,
        {m.name: (m.use, m.dtype, m.quantize, m.tensor_parallel, m.cost) for m in plan.models},
        {h.name: (h.kind, h.file, names[h.model], list(h.reads)) for h in plan.heads},
        [(p.name, p.unit, p.value, p.low, p.high) for p in plan.params],
        [(v.name, v.unit, v.value) for v in plan.vars],
        [(kind, claim.text) for kind, claim in zip(kinds, plan.claims, strict=True)],
        plan.windows.objective,
    )
    return told == holds
