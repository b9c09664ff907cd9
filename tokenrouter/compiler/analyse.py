"""What the compiler finds in a policy without model files: the passes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tokenrouter.compiler import pipeline
from tokenrouter.compiler.ir import Automaton
from tokenrouter.compiler.lower import lower
from tokenrouter.compiler.seen import Seen
from tokenrouter.compiler.supposed import supposed
from tokenrouter.diagnostics import Diagnostic, PolicyError
from tokenrouter.dsl import hir


def analyse(policy: hir.Policy) -> list[Diagnostic]:
    """Return everything that the passes find in a resolved policy and its tests, in source order."""
    return _found(policy)[1]


def analyse_again(
    policy: hir.Policy, seen: Seen, stop: Callable[[], None] = lambda: None
) -> list[Diagnostic]:
    """Return the same of a policy that is typed: states that were looked at before are not again.

    `stop` is asked before each state that is, and raises where nobody waits any more.
    """
    raw = seen.lower(policy)
    _, found = pipeline.run(raw, passes=pipeline.passes_that(partial(seen.look, stop)))
    return found + supposed(raw, policy)


def _found(policy: hir.Policy) -> tuple[Automaton, list[Diagnostic]]:
    raw = lower(policy)
    auto, found = pipeline.run(raw)
    return auto, found + supposed(raw, policy)


def complete(
    resolved: hir.Resolved,
    look: Callable[[hir.Policy], list[Diagnostic]] = analyse,
    *,
    heads: bool = True,
) -> hir.Resolved:
    """Return what the front end found and what the passes add, of policies without an error of their own.

    `look` may know what `analyse` would find, from before; without `heads` no file of a head is opened, nor where there
    is an error.
    """
    sound = [policy for policy in resolved.policies if policy.name not in resolved.doubted]
    passes = [d for policy in sound for d in look(policy)]
    if any(d.severity == "error" for d in resolved.diagnostics):
        heads = False
    if heads and any(policy.heads for policy in resolved.policies):  # seldom, and costs an import
        passes += _heads(resolved)
    return replace(resolved, diagnostics=tuple(together(resolved, passes)))


def together(resolved: hir.Resolved, passes: list[Diagnostic]) -> list[Diagnostic]:
    """Return what the front end found with what the passes did: in source order, each once."""
    found = [*resolved.diagnostics, *map(_in_its_language, passes)]
    once = list({(d.code, d.span, d.message): d for d in found}.values())
    return sorted(once, key=lambda d: (d.span.file, d.span.start, d.code))


def _in_its_language(diagnostic: Diagnostic) -> Diagnostic:
    """Return a diagnostic of a pass whose help is in the spelling of its file."""
    if not diagnostic.span.file.endswith(".py"):
        return diagnostic
    from tokenrouter.dsl.python_help import in_python  # noqa: PLC0415 most files need none of it

    return in_python(diagnostic, keep_fix=True)


def _heads(resolved: hir.Resolved) -> list[Diagnostic]:
    """Return what is wrong with the files of heads, as far as they are at hand."""
    from tokenrouter.compiler.heads import at_hand  # noqa: PLC0415

    base = Path(resolved.file).resolve().parent
    return [d for policy in resolved.policies for d in at_hand(lower(policy).heads, base)]


def analysed(resolved: hir.Resolved) -> tuple[Automaton, list[Diagnostic]]:
    """Return the IR of a file's one policy after all passes, and the warnings; raises PolicyError."""
    auto, found = _found(resolved.only())
    refuse(resolved, found)
    return auto, found


def refuse(resolved: hir.Resolved, found: list[Diagnostic]) -> None:
    """Raise PolicyError where something found is an error; it tells the warnings too."""
    if any(diagnostic.severity == "error" for diagnostic in found):
        raise PolicyError(together(resolved, found), resolved.texts)
