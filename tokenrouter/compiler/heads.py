"""Hold the heads of a policy against their files, and the files against the models that they read; no weights are read.

Reports:
    TR4201  a head's file is not there
    TR4202  a file is no head, or its tensors do not fit together
    TR4203  a file holds a head of another kind
    TR4204  a head reads a hidden state of another width
    TR4205  a head reads more logits than the vocabulary has
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenrouter.compiler.facts import Facts
from tokenrouter.compiler.ir import Automaton, HeadDecl, ModelDecl
from tokenrouter.diagnostics import Diagnostic, Label
from tokenrouter.models.head import HeadFile, HeadFileError, read_head


def at_hand(heads: tuple[HeadDecl, ...], base: Path) -> list[Diagnostic]:
    """Return what is wrong with those files that are there; relative paths start at `base`."""
    files = [decl for decl in heads if decl.kind != "python" and (base / decl.file).exists()]
    return [found for decl in files if isinstance(found := _read(decl, base), Diagnostic)]


def compare(auto: Automaton, facts: list[Facts], base: Path) -> list[Diagnostic]:
    """Return what is wrong between the heads and their models; a file that is not there is wrong too."""
    found: list[Diagnostic] = []
    by_name = {decl.name: (decl, fact) for decl, fact in zip(auto.models, facts, strict=True)}
    for decl in auto.heads:
        if decl.kind == "python":
            continue
        head = _read(decl, base)
        if isinstance(head, Diagnostic):
            found.append(head)
        else:
            found += _fit(decl, head, *by_name[decl.model])
    return found


def _read(decl: HeadDecl, base: Path) -> HeadFile | Diagnostic:
    path = base / decl.file
    if not path.exists():
        return Diagnostic(
            "TR4201",
            "error",
            f"head `{decl.name}`: there is no file `{path}`",
            decl.span,
            help="a relative path starts at the directory of the policy",
        )
    try:
        head = read_head(path)
    except HeadFileError as error:
        return Diagnostic("TR4202", "error", f"head `{decl.name}`: {error}", decl.span)
    if head.kind != decl.kind:
        return Diagnostic(
            "TR4203",
            "error",
            f"head `{decl.name}` is declared as `{decl.kind}`, and `{path}` holds one of kind `{head.kind}`",
            decl.span,
            help=f"write `kind {head.kind}`, and `reads` with the parts that it takes",
        )
    return head


def _fit(decl: HeadDecl, head: HeadFile, model: ModelDecl, fact: Facts) -> Iterator[Diagnostic]:
    label = (Label(model.span, f"`{model.name}` is declared here"),)
    if head.hidden != fact.config.hidden:
        yield Diagnostic(
            "TR4204",
            "error",
            f"head `{decl.name}` reads a hidden state of {head.hidden} numbers, and that of `{model.name}` "
            f"has {fact.config.hidden}",
            decl.span,
            label,
            help="a head works with the one model that it was trained on",
        )
    if head.top > fact.vocabulary.size:
        yield Diagnostic(
            "TR4205",
            "error",
            f"head `{decl.name}` reads the {head.top} largest logits, and `{model.name}` has {fact.vocabulary.size}",
            decl.span,
            label,
            help="a head works with the one model that it was trained on",
        )
