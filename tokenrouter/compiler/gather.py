"""Look the policy's models and heads up on this machine.

A model that is not there, or is none, is the world's fault: `ModelError`, one line, with the policy's name for it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replace_in

from tokenrouter.compiler.facts import Facts
from tokenrouter.compiler.ir import Automaton, HeadDecl
from tokenrouter.errors import TokenRouterError
from tokenrouter.models import (
    Located,
    ModelError,
    count_parameters,
    fingerprint,
    locate,
    read_config,
    read_vocabulary,
)
from tokenrouter.models.chat import read_template
from tokenrouter.models.dummy import SHAPES
from tokenrouter.plan.structs import Plan


class HeadError(TokenRouterError):
    """The file of a router head cannot be read."""


def gather(auto: Automaton, base: Path) -> list[Facts]:
    """Return the facts of every model, in order; relative paths start at `base`. Raises ModelError."""
    facts = [facts_of(decl.name, decl.use, base) for decl in auto.models]
    for decl, fact in zip(auto.models, facts, strict=True):
        if decl.quantize != "none" and not fact.config.is_own:
            why = f"`{fact.config.family}` runs through transformers"  # better told here than when it is served
            raise ModelError(
                f"model `{decl.name}`: `quantize {decl.quantize}` is not possible: {why}; leave it out"
            )
    return facts


def facts_of(name: str, use: str, base: Path) -> Facts:
    """Return the facts of one model. Raises ModelError."""
    try:
        return read(locate(use, base))
    except ModelError as error:
        raise ModelError(f"model `{name}`: {error}") from None


def read(located: Located) -> Facts:
    """Return what a model's files say. Raises ModelError."""
    try:
        config, vocabulary = read_config(located), read_vocabulary(located)
        template = read_template(located)
        return Facts(
            fingerprint=fingerprint(located, config, vocabulary),
            config=config,
            vocabulary=vocabulary,
            template=None if template is None else template.text,
            parameters=count_parameters(located),
        )
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ModelError(
            f"the files of `{located.path}` do not hold what they should: {why}"
        ) from error


def placed(auto: Automaton, base: Path, home: Path | None) -> Automaton:
    """Return the policy with its relative paths written so that they hold from `home`; absolute where that is None."""
    models = tuple(replace(decl, use=_placed(decl.use, base, home)) for decl in auto.models)
    heads = tuple(
        decl if decl.kind == "python" else replace(decl, file=_placed(decl.file, base, home))
        for decl in auto.heads
    )
    return replace(auto, models=models, heads=heads)


def moved(plan: Plan, base: Path, home: Path) -> Plan:
    """Return a plan whose relative paths start at `base` with paths that hold from `home`."""
    models = [replace_in(model, use=_placed(model.use, base, home)) for model in plan.models]
    heads = [
        head if head.kind == "python" else replace_in(head, file=_placed(head.file, base, home))
        for head in plan.heads
    ]
    return replace_in(plan, models=models, heads=heads)


def _placed(written: str, base: Path, home: Path | None) -> str:
    """Return a relative path as seen from elsewhere; what is no path on this machine stays as it is."""
    if written.startswith("dummy:"):
        name, asked, query = written.removeprefix("dummy:").partition("?")
        where = name if name in SHAPES else _placed(name, base, home)
        return f"dummy:{where}{asked}{query}"
    path = base / written
    if os.path.isabs(written) or not path.exists():
        return written
    return str(path.resolve()) if home is None else os.path.relpath(path.resolve(), home.resolve())


def head_digests(auto: Automaton, base: Path) -> dict[str, str]:
    """Return the digest of each head: of its file, or of its name where it is Python."""
    return {decl.name: _digest(decl, base) for decl in auto.heads}


def _digest(decl: HeadDecl, base: Path) -> str:
    if decl.kind == "python":
        return hashlib.sha256(decl.file.encode()).hexdigest()
    path = base / decl.file
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise HeadError(f"head `{decl.name}`: cannot read `{path}`: {error.strerror}") from None
