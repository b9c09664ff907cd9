"""What the passes find of a policy, and what only its models show where all of them are on this machine: for `trc check`.

With models at hand the size of the vocabulary is known to the passes, and models and heads are held against each other; a
head's file that is not there is told then too. A model that is not there, or cannot be read, is no diagnostic here: `trc compile` wants it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenrouter.compiler import pipeline
from tokenrouter.compiler.analyse import analyse
from tokenrouter.compiler.lower import lower
from tokenrouter.compiler.supposed import supposed
from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import hir

if TYPE_CHECKING:
    from tokenrouter.compiler.facts import Facts


def looking(base: Path) -> Callable[[hir.Policy], list[Diagnostic]]:
    """Return `analyse` with a look at models and heads; relative paths start at `base`."""
    known: dict[str, Facts | None] = {}

    def look(policy: hir.Policy) -> list[Diagnostic]:
        if not all(_perhaps(model.use, base) for model in policy.models):
            return analyse(policy)  # as in most files, which then need not wait for the imports
        facts = _facts(policy, base, known)
        if facts is None:
            return analyse(policy)
        from tokenrouter.models import ModelError  # noqa: PLC0415

        try:
            return list(_found(policy, base, facts))
        except (ModelError, OSError):  # a table is gone that was there when its entry was kept
            return analyse(policy)

    return look


def _perhaps(use: str, base: Path) -> bool:
    """Return whether a model may be here, as `models.locate` looks for it; that says for sure, and takes long to import."""
    if use.startswith(("demo:", "dummy:")):
        return True
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    path = base / os.path.expanduser(os.path.expandvars(use))
    return os.path.exists(path) or os.path.exists(f"{hub}/models--{use.replace('/', '--')}")


def _facts(
    policy: hir.Policy, base: Path, known: dict[str, Facts | None]
) -> dict[str, Facts] | None:
    """Return the facts of a policy's models by name; None where one is not at hand."""
    from tokenrouter.compiler.kept import facts_of  # noqa: PLC0415
    from tokenrouter.models import ModelError  # noqa: PLC0415

    out: dict[str, Facts] = {}
    for model in policy.models:
        if model.use not in known:
            try:
                known[model.use] = facts_of(model.use, base)
            except (ModelError, OSError):
                known[model.use] = None
        fact = known[model.use]
        if fact is None:
            return None
        out[model.name] = fact
    return out


def _found(policy: hir.Policy, base: Path, facts: dict[str, Facts]) -> Iterator[Diagnostic]:
    from tokenrouter.compiler import heads, models  # noqa: PLC0415

    first = facts[policy.models[0].name]
    raw = replace(lower(policy), vocabulary=first.vocabulary.size)
    auto, found = pipeline.run(raw)
    yield from found
    yield from supposed(raw, policy)
    live = [facts[decl.name] for decl in auto.models]
    yield from models.compare(auto, live)
    yield from heads.compare(auto, live, base)
