"""What the compiler finds in a policy without model files: the passes, and nothing else."""

from __future__ import annotations

from tokenrouter.compiler import pipeline
from tokenrouter.compiler.lower import lower
from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import hir


def analyse(policy: hir.Policy) -> list[Diagnostic]:
    """Return everything that the passes find in a resolved policy, in source order."""
    _, found = pipeline.run(lower(policy))
    return found
