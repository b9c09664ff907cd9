"""The way into the front end: a file, or a text, becomes a resolved policy or a list of diagnostics.

Needs: a path or text. Gives: `hir.Resolved`; raises PolicyError with everything that is wrong, SourceError where the file
itself cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tokenrouter.diagnostics import Diagnostic, Label, PolicyError
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.comments import comments
from tokenrouter.dsl.declare import declare, resolve
from tokenrouter.dsl.doubt import doubted
from tokenrouter.dsl.files import Files
from tokenrouter.dsl.findings import Findings
from tokenrouter.dsl.fitting import fit
from tokenrouter.dsl.literals import value_of
from tokenrouter.dsl.metadata import one_type
from tokenrouter.dsl.nearest import did_you_mean
from tokenrouter.dsl.parse import Tree, parse
from tokenrouter.dsl.policies import PolicyReader, mentioned
from tokenrouter.dsl.scope import Entry, Scope, snake
from tokenrouter.dsl.source import Source, read_text
from tokenrouter.dsl.suites import read_test
from tokenrouter.dsl.units import outside

Sets = Mapping[str, str]
VERSION = "1"


def load(
    path: str | os.PathLike[str],
    policy: str | None = None,
    sets: Sets | None = None,
    *,
    one: bool = False,
) -> hir.Resolved:
    """Return a file's policies, or the one named `policy`; with `one` there must be exactly one."""
    name = os.fspath(path)
    return parse_text(read_text(name), name, policy, sets, one=one)


def parse_text(
    text: str,
    filename: str = "policy.route",
    policy: str | None = None,
    sets: Sets | None = None,
    *,
    one: bool = False,
) -> hir.Resolved:
    """Return the same for a text; `filename` says where imports are looked for."""
    resolved = _resolve(text, filename, sets or {}, policy, one)
    if any(d.severity == "error" for d in resolved.diagnostics):
        raise PolicyError(list(resolved.diagnostics), resolved.texts)
    return resolved


def check_source(text: str, filename: str = "policy.route") -> list[Diagnostic]:
    """Return everything that the front end finds in a text."""
    return list(examine(text, filename).diagnostics)


def examine(text: str, filename: str = "policy.route") -> hir.Resolved:
    """Return the policies that are sound, and everything that the front end finds; never raises."""
    return _resolve(text, filename, {}, None, False)


@dataclass(frozen=True, slots=True)
class Study:
    """A file with all that was made on the way: for an editor, which asks about places."""

    resolved: hir.Resolved
    scope: Scope
    main: Tree
    trees: tuple[Tree, ...]  # imported ones first


def study(text: str, filename: str, sets: Sets, read: Callable[[str], str] = read_text) -> Study:
    """Return what `examine` finds and how.

    `sets` may hold params of other files, which are left aside; `read` gives the text of an imported file, which may be
    open in an editor.
    """
    return _study(text, filename, sets, None, False, read, known_only=True)


def _resolve(text: str, filename: str, sets: Sets, policy: str | None, one: bool) -> hir.Resolved:
    return _study(text, filename, sets, policy, one, read_text).resolved


def _study(
    text: str,
    filename: str,
    sets: Sets,
    policy: str | None,
    one: bool,
    read: Callable[[str], str],
    *,
    known_only: bool = False,
) -> Study:
    found = Findings()
    files = Files(found, read)
    main = files.add(filename, text, False)
    scope = Scope(found)
    for tree, imported in files.trees:
        header(found, tree, late=says_version(tree, 0, len(tree.tokens.kinds)))
        declare(scope, tree, tree.file.items, imported)
    resolve(scope)
    if known_only:
        sets = {name: value for name, value in sets.items() if scope.get(name, "param")}
    give(scope, files.texts, sets)
    policies = _policies(scope, main)
    unused(scope, policies, lost=bool(main.lost))
    sound = [read for _, read in policies if read is not None]
    own = [closed(scope, mentioned(read)) for read in sound]
    everywhere = set().union(*own)
    made = [complete(scope, read, of, everywhere) for read, of in zip(sound, own, strict=True)]
    for one_policy in made:
        one_type(found, one_policy)
    if policy is not None or one:
        made = _choose(found, main, made, policy)
    if not known_only:
        made = [_with_imported(policy, files) for policy in made]
    diagnostics = tuple(in_its_language(d) for d in found.finish())
    places = ((item, main.source.span(item.start, item.end)) for item in main.file.items)
    unsure = doubted(diagnostics, filename, places)
    resolved = hir.Resolved(filename, tuple(made), diagnostics, files.texts, unsure)
    return Study(resolved, scope, main, tuple(tree for tree, _ in files.trees))


def in_its_language(diagnostic: Diagnostic) -> Diagnostic:
    """Return a diagnostic whose help and fix are in the spelling of its file."""
    if not diagnostic.span.file.endswith(".py"):
        return diagnostic
    from tokenrouter.dsl.python_help import in_python  # noqa: PLC0415 most files need none of it

    return in_python(diagnostic)


def header(found: Findings, tree: Tree, *, late: bool) -> None:
    """Report a file that does not begin with its version; where it comes `late` that is told already."""
    header = tree.file.header
    if header is None:
        if not late and not any(
            first <= tree.tokens.starts[tree.tokens.real[0]] for first, _ in tree.lost
        ):
            start = tree.tokens.starts[tree.tokens.real[0]]
            found.add(
                "TR0208",
                "the file does not say which version of the language it is in",
                tree.source.span(start, tree.tokens.end(tree.tokens.real[0])),
                help="begin it with `route 1`",
            )
    elif header.version.text != VERSION:
        span = tree.source.span(header.version.start, header.version.end)
        found.add(
            "TR0209",
            f"version {header.version.text} of the language is not known here",
            span,
            help=f"this program reads version {VERSION}",
        )


def says_version(tree: Tree, first: int, last: int) -> bool:
    """Return whether `route 1` stands between two tokens, be it where it must not."""
    kinds = tree.tokens.kinds
    if "ROUTE" not in kinds:
        return False
    real = [kinds[token] for token in tree.tokens.real if first <= token < last]
    return ("ROUTE", "NUMBER") in pairwise(real)


def give(scope: Scope, texts: dict[str, str], sets: Sets) -> None:
    """Give params the values of `--set`; what is wrong with one is shown as it was given."""
    for name, text in sets.items():
        shown = Source.of(f"--set {name}={text}", f"{name}={text}")
        value = _setting(scope, name, text, shown)
        entry = scope.get(name, "param")
        if value is None:
            texts[shown.name] = shown.text
        elif entry is not None and isinstance(entry.hir, hir.Param):
            entry.hir = replace(entry.hir, value=value)


def _setting(scope: Scope, name: str, text: str, shown: Source) -> float | bool | None:
    """Return a value that a param may have, read as the text that it is; None where it may not."""
    entry = scope.get(name, "param")
    if entry is None:
        scope.found.add(
            "TR1008",
            f"there is no param `{name}` to set",
            shown.span(0, len(name)),
            help=did_you_mean(name, scope.names("param")),
        )
        return None
    if not isinstance(entry.hir, hir.Param):
        return None
    span = shown.span(len(name) + 1, len(shown.text))
    tree = parse(Source.of(shown.name, f"route 1 param {name}: x = {text}"))
    item = tree.file.items[0] if tree.file.items else None
    if tree.problems or not isinstance(item, ast.Param) or item.value is None or item.bounds:
        message, help_ = f"`{text}` is no value for `{name}`", "give a literal, as `0.5` or `20%`"
        scope.found.add("TR1106", message, span, help=help_)
        return None
    value = value_of(scope, tree, item.value, entry.hir.unit, span)
    low, high = entry.hir.low, entry.hir.high
    if value is None:
        return None
    why = outside(entry.hir.unit, value)
    if why is not None:
        code, message, help_ = why
        scope.found.add(code, message, span, help=help_)
        return None
    if (low is not None and value < low) or (high is not None and value > high):
        message = f"`{name}` may be set from {low:g} to {high:g}, not to {text}"
        label = Label(entry.span(), "its bounds are declared here")
        help_ = "give a value within them, or move a bound"
        scope.found.add("TR1105", message, span, labels=(label,), help=help_)
        return None
    return value


def _policies(scope: Scope, main: Tree) -> list[tuple[ast.Policy, hir.Policy | None]]:
    """Return the policies of the main file, with their tests and comments."""
    nodes = [item for item in main.file.items if isinstance(item, ast.Policy)]
    tests = [
        (item, *read_test(scope, main, item))
        for item in main.file.items
        if isinstance(item, ast.Test)
    ]
    spoken = comments(main)
    by_name: dict[str, ast.Policy] = {}
    made: list[tuple[ast.Policy, hir.Policy | None]] = []
    for node in nodes:
        name = snake(node.name.text)
        span = main.source.span(node.name.start, node.name.end)
        first = by_name.setdefault(name, node)
        if first is not node:
            scope.found.add(
                "TR1006",
                f"policy `{node.name.text}` is declared twice",
                span,
                labels=(
                    Label(main.source.span(first.name.start, first.name.end), "it is here first"),
                ),
                help="rename one of them, or remove it",
            )
        read = PolicyReader(scope, main, node).read()
        own = [(item, test) for item, of, test in tests if of == name]
        if read is not None and first is node:
            read = replace(read, tests=tuple(test for _, test in own), comments=_said(spoken, name))
        made.append((node, read if first is node else None))
    for item, of, _ in tests:
        if of not in by_name and (nodes or not main.lost):
            span = main.source.span(item.policy.start, item.policy.end)
            known = [node.name.text for node in nodes]
            scope.found.unknown("TR1003", "policy", item.policy.text, span, known)
    return made


def _with_imported(policy: hir.Policy, files: Files) -> hir.Policy:
    """Return a policy with the comments on what it imports."""
    lists = (policy.models, policy.heads, policy.idle_heads, policy.params, policy.vars)
    kept = {item.name for items in (*lists, policy.signals) for item in items}
    said = [c for tree, far in files.trees if far for c in comments(tree).get("", ())]
    own = ("model", "head", "param", "var", "signal")
    heard = [c for c in said if not c.anchor.startswith(own) or c.anchor.split()[-1] in kept]
    return replace(policy, comments=(*heard, *policy.comments)) if heard else policy


def _said(spoken: dict[str, tuple[hir.Comment, ...]], name: str) -> tuple[hir.Comment, ...]:
    """Return the comments that concern a policy: those of its own between those of the file."""
    if "" not in spoken:
        return spoken.get(name, ())
    after = [c for c in spoken[""] if (c.anchor, c.place) == ("file", "end")]
    before = [c for c in spoken[""] if (c.anchor, c.place) != ("file", "end")]
    return (*before, *spoken.get(name, ()), *after)


def complete(scope: Scope, policy: hir.Policy, own: set[str], everywhere: set[str]) -> hir.Policy:
    """Return a policy with its declarations: its own, which it mentions, and those that no policy of the file does."""
    keep = {name for name in scope.entries if name in own or name not in everywhere}
    heads = [e.hir for n, e in scope.entries.items() if isinstance(e.hir, hir.Head) and n in keep]
    models = tuple(
        e.hir for n, e in scope.entries.items() if isinstance(e.hir, hir.Model) and n in keep
    )
    blocks = {block.model: block for block in policy.blocks}
    return replace(
        policy,
        models=models,
        blocks=tuple(blocks.get(m.name, hir.Block(m.name, (), m.span)) for m in models),
        params=tuple(
            e.hir for n, e in scope.entries.items() if isinstance(e.hir, hir.Param) and n in keep
        ),
        vars=tuple(
            e.hir for n, e in scope.entries.items() if isinstance(e.hir, hir.Var) and n in keep
        ),
        heads=tuple(head for head in heads if head.name in own),
        idle_heads=tuple(head for head in heads if head.name not in own and head.model in keep),
        signals=tuple(
            _fitted(scope, e)
            for n, e in scope.entries.items()
            if isinstance(e.hir, hir.DerivedSignal) and n in keep
        ),
    )


def _fitted(scope: Scope, entry: Entry) -> hir.DerivedSignal:
    """Return a derived signal whose bare numbers are plain numbers."""
    assert isinstance(entry.hir, hir.DerivedSignal)
    of = fit(entry.hir.of, "number")
    return replace(entry.hir, of=of, unit=of.unit)


def closed(scope: Scope, names: set[str]) -> set[str]:
    """Return names with the models of the heads among them."""
    heads = (entry.hir for name in names if (entry := scope.entries.get(name)) is not None)
    return names | {head.model for head in heads if isinstance(head, hir.Head)}


def unused(
    scope: Scope, policies: list[tuple[ast.Policy, hir.Policy | None]], *, lost: bool
) -> None:
    """Warn of declarations that nothing uses, where the file has policies and all of it was read."""
    if not policies or lost or any(read is None for _, read in policies):
        return
    if scope.found.has("TR2001"):  # what is missing may use it
        return
    for entry in scope.entries.values():
        if not entry.used and not entry.imported and not entry.broken:
            name = entry.node.name.text
            scope.found.add(
                "TR1301",
                f"{entry.kind} `{name}` is declared and never used",
                entry.span(),
                help="remove it, or use it",
            )


def _choose(
    found: Findings, main: Tree, made: list[hir.Policy], policy: str | None
) -> list[hir.Policy]:
    """Return the one policy that is meant, and report where it is not one."""
    names = [item.name.text for item in main.file.items if isinstance(item, ast.Policy)]
    whole = main.source.span(0, 0)
    if policy is not None:
        if snake(policy) not in {snake(name) for name in names}:
            found.add(
                "TR1003",
                f"there is no policy `{policy}` in `{main.source.name}`",
                whole,
                help=did_you_mean(policy, names),
            )
        return [item for item in made if item.name == snake(policy)]
    if len(names) != 1 and not main.lost:
        what = (
            "holds no policy"
            if not names
            else f"holds {len(names)} policies, and one must be meant"
        )
        found.add(
            "TR1011",
            f"`{main.source.name}` {what}",
            whole,
            help="name one: " + ", ".join(f"`{name}`" for name in names)
            if names
            else "add `policy NAME { ... }`",
        )
    return made


__all__ = ["Sets", "Study", "check_source", "examine", "load", "parse_text", "study"]
