"""Find models that requests never leave although their rules mean to.

Needs: reachable states. Gives: nothing is changed. Reports: TR2102.

A model whose rules never hand a request on is a choice. One that has such rules, none of which can fire, is an accident.
"""

from __future__ import annotations

from tokenrouter.compiler.graph import leaves
from tokenrouter.compiler.ir import Automaton, State, Stop
from tokenrouter.compiler.liveness import alive, at_values
from tokenrouter.compiler.seen import Look, anew
from tokenrouter.diagnostics import Diagnostic, Label


def never_left(auto: Automaton, look: Look = anew) -> list[Diagnostic]:
    """Return one warning a model that is never left by accident."""
    return [d for state in auto.states for d in look("never_left", auto, state, _looked_at)]


def _looked_at(auto: Automaton, state: State) -> list[Diagnostic]:
    leaving = [index for index in range(len(state.rules)) if leaves(state, index)]
    if not leaving:
        return []
    live = alive(
        at_values(auto), state.rules[: leaving[-1] + 1]
    )  # no more rules than it takes to find one
    if any(fires for index, fires in enumerate(live) if leaves(state, index)):
        return []
    return [_never_left(state, leaving)]


def _never_left(state: State, leaving: list[int]) -> Diagnostic:
    """TR2102."""
    ends = [isinstance(state.rules[index].go, Stop) for index in leaving]
    labels = tuple(
        Label(
            state.rules[index].span,
            f"this rule would {'end it' if stops else 'hand it on'}, and can never fire",
        )
        for index, stops in zip(leaving, ends, strict=True)
    )
    said = f"no request ever leaves `{state.model}`, although its rules mean to"
    if all(ends):
        said = f"no rule ever ends a request at `{state.model}`, although {'one means' if len(ends) == 1 else 'some mean'} to"
    return Diagnostic(
        "TR2102",
        "warning",
        said,
        state.span,
        labels,
        help="mend the conditions of these rules, or remove them if the model is meant to keep what it gets",
    )
