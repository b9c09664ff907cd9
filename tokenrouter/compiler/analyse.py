"""What the compiler finds in a policy without model files: the passes, and nothing else."""

from __future__ import annotations

from tokenrouter.compiler import pipeline
from tokenrouter.compiler.ir import Automaton
from tokenrouter.compiler.lower import lower
from tokenrouter.diagnostics import Diagnostic, PolicyError
from tokenrouter.dsl import hir


def analyse(policy: hir.Policy) -> list[Diagnostic]:
    """Return everything that the passes find in a resolved policy, in source order."""
    _, found = pipeline.run(lower(policy))
    return found


def analysed(resolved: hir.Resolved) -> tuple[Automaton, list[Diagnostic]]:
    """Return the IR of a file's one policy after all passes, and the warnings; raises PolicyError."""
    auto, found = pipeline.run(lower(resolved.only()))
    refuse(resolved, found)
    return auto, found


def refuse(resolved: hir.Resolved, found: list[Diagnostic]) -> None:
    """Raise PolicyError where something found is an error; it tells the warnings too."""
    if any(diagnostic.severity == "error" for diagnostic in found):
        raise PolicyError([*resolved.diagnostics, *found], resolved.texts)
