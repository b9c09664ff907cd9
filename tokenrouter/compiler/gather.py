"""Look the policy's models and heads up on this machine.

A model that is not there, or is none, is the world's fault: `ModelError`, one line, with the policy's name for it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tokenrouter.compiler.facts import Facts
from tokenrouter.compiler.ir import Automaton, HeadDecl
from tokenrouter.errors import TokenRouterError
from tokenrouter.models import (
    ModelError,
    count_parameters,
    fingerprint,
    locate,
    read_config,
    read_vocabulary,
)
from tokenrouter.models.tokenizer import read_template


class HeadError(TokenRouterError):
    """The file of a router head cannot be read."""


def gather(auto: Automaton, base: Path) -> list[Facts]:
    """Return the facts of every model, in order; relative paths start at `base`. Raises ModelError."""
    return [_facts(decl.name, decl.use, base) for decl in auto.models]


def _facts(name: str, use: str, base: Path) -> Facts:
    try:
        located = locate(use, base)
        template = read_template(located)
        return Facts(
            fingerprint=fingerprint(located),
            config=read_config(located),
            vocabulary=read_vocabulary(located),
            template=None if template is None else template.text,
            parameters=count_parameters(located),
        )
    except ModelError as error:
        raise ModelError(f"model `{name}`: {error}") from None


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
