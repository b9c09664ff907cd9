"""What only model files show of a policy, told by `trc check` too where all models of that policy are on this machine.

Needs: what the passes found without models, no error among it. Gives: the same with what the passes find once more, now that
the size of the vocabulary is known, and with what models and heads say of each other. A model that is not there, or cannot be
read, is no diagnostic here: `trc compile` wants it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import hir

if TYPE_CHECKING:
    from tokenrouter.compiler.facts import Facts


def with_models(resolved: hir.Resolved) -> hir.Resolved:
    """Return what was found in a file, with what the models of its policies add."""
    if any(d.severity == "error" for d in resolved.diagnostics):
        return resolved
    base = Path(resolved.file).parent
    here = [
        policy for policy in resolved.policies if all(_perhaps(m.use, base) for m in policy.models)
    ]
    if not here:  # as in most files, which then need not wait for the imports
        return resolved
    from tokenrouter.compiler.analyse import together  # noqa: PLC0415

    known: dict[str, Facts | None] = {}
    told = {(d.code, d.span) for d in resolved.diagnostics}
    found = [
        d for policy in here for d in _look(policy, base, known) if (d.code, d.span) not in told
    ]
    return replace(resolved, diagnostics=tuple(together(resolved, found))) if found else resolved


def _perhaps(use: str, base: Path) -> bool:
    """Return whether a model may be here, as `models.locate` looks for it; that says for sure, and takes long to import."""
    if use.startswith(("demo:", "dummy:")):
        return True
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    path = base / Path(os.path.expandvars(use)).expanduser()
    return path.exists() or (hub / f"models--{use.replace('/', '--')}").exists()


def _look(policy: hir.Policy, base: Path, known: dict[str, Facts | None]) -> Iterator[Diagnostic]:
    from tokenrouter.compiler import heads, models, pipeline  # noqa: PLC0415
    from tokenrouter.compiler.gather import facts_of  # noqa: PLC0415
    from tokenrouter.compiler.lower import lower  # noqa: PLC0415
    from tokenrouter.models import ModelError  # noqa: PLC0415

    for model in policy.models:
        if model.use not in known:
            try:
                known[model.use] = facts_of(model.name, model.use, base)
            except ModelError:
                known[model.use] = None
    facts = [fact for model in policy.models if (fact := known[model.use]) is not None]
    if len(facts) < len(policy.models):
        return
    auto, found = pipeline.run(replace(lower(policy), vocabulary=facts[0].vocabulary.size))
    by_name = {model.name: fact for model, fact in zip(policy.models, facts, strict=True)}
    live = [by_name[decl.name] for decl in auto.models]
    there = tuple(decl for decl in auto.heads if (base / decl.file).exists())
    yield from found
    yield from models.compare(auto, live)
    yield from heads.compare(replace(auto, heads=there), live, base)
