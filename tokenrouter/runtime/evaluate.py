"""A program's nodes over the rows of a step: one array a node, only for the nodes that are needed.

Shapes: B rows, V real vocabulary. Numbers are float64 [B], whatever the model's dtype, so that a signal and a threshold
compare as they do on paper; conditions are bool [B]; texts are lists of str. Signals are computed by torch where the logits are, all else
by numpy, whose operations over a few rows take a third to a seventh of the time of torch's.

Windows are kept by request, as the last n values of a node at this model; evaluating the Window node appends to them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import tokenrouter_kernels as kernels
import torch
from numpy.typing import NDArray

from tokenrouter.plan.structs import (
    AllOf,
    AnyOf,
    Arith,
    ClassIs,
    Compare,
    Const,
    HeadRef,
    Node,
    Not,
    ParamRef,
    Plan,
    RequestField,
    Signal,
    TokenIn,
    Value,
    VarRef,
    Window,
)
from tokenrouter.runtime.row import Output, Row
from tokenrouter.runtime.start import COMPARE, field
from tokenrouter.runtime.vocabulary import Vocabulary

Numbers = NDArray[np.float64] | NDArray[np.bool_]
Column = Numbers | list[str]
Leaf = Signal | Const | ParamRef | VarRef | TokenIn | ClassIs | RequestField | HeadRef
Head = Callable[[Output], torch.Tensor]  # a step's outputs -> prob [B]


class Values:
    """The nodes that were evaluated for some rows."""

    __slots__ = ("columns",)

    def __init__(self) -> None:
        self.columns: dict[int, Column] = {}

    def __contains__(self, node: int) -> bool:
        return node in self.columns

    def numbers(self, node: int) -> Numbers:
        """Return a number or condition node: [B]."""
        column = self.columns[node]
        assert isinstance(column, np.ndarray), node
        return column


class Evaluator:
    """The nodes of one model's program, ready to be evaluated."""

    def __init__(
        self, plan: Plan, model: int, vocabulary: Vocabulary, heads: dict[int, Head]
    ) -> None:
        self.plan = plan
        self.model = model
        self.nodes = plan.programs[model].nodes
        self.vocabulary = vocabulary
        self.heads = heads
        windows = [at for at, node in enumerate(self.nodes) if isinstance(node, Window)]
        self.window_slot = {node: slot for slot, node in enumerate(windows)}
        self._tables: dict[int, NDArray[np.bool_]] = {}

    def evaluate(self, needed: list[int], rows: list[Row]) -> Values:
        """Return the needed nodes, given in dependency order, for rows of one output."""
        values = Values()
        step = _Step(rows)
        for at in needed:
            values.columns[at] = self._node(at, self.nodes[at], values, step)
        return values

    def _node(self, at: int, node: Node, values: Values, step: _Step) -> Column:
        match node:
            case Compare():
                return self._compare(node, values)
            case Arith():
                return _arith(node.sign, values.numbers(node.left), values.numbers(node.right))
            case AllOf():
                return reduce(np.logical_and, [values.numbers(of) for of in node.of])
            case AnyOf():
                return reduce(np.logical_or, [values.numbers(of) for of in node.of])
            case Not():
                return np.logical_not(values.numbers(node.of))
            case Window():
                return self._window(at, node, values.numbers(node.of), step)
            case _:
                return self._leaf(at, node, step)

    def _leaf(self, at: int, node: Leaf, step: _Step) -> Column:
        match node:
            case Signal(name="queue" | "elapsed"):
                return _load(at, node, step)
            case Signal():
                return self._signal(node, step)
            case Const():
                return step.constant(node.value)
            case ParamRef():
                is_bool = isinstance(self.plan.params[node.param].value, bool)
                return step.column([s.sequence.params[node.param] for s in step.rows], is_bool)
            case VarRef():
                is_bool = isinstance(self.plan.vars[node.var].value, bool)
                return step.column([s.sequence.state.vars[node.var] for s in step.rows], is_bool)
            case TokenIn() | ClassIs():
                return self._table(at, node)[step.tokens()]
            case RequestField():
                return _fields(node, step)
            case HeadRef():
                return step.pick(self.heads[node.head](step.output))

    def _compare(self, node: Compare, values: Values) -> Numbers:
        left, right = values.columns[node.left], values.columns[node.right]
        compare = COMPARE[node.sign]
        if isinstance(left, np.ndarray):
            result: NDArray[np.bool_] = compare(left, right)
            return result
        assert isinstance(right, list)
        return np.array([bool(compare(a, b)) for a, b in zip(left, right, strict=True)])

    def _table(self, at: int, node: TokenIn | ClassIs) -> NDArray[np.bool_]:
        """Return a bool for every id of the vocabulary: [V]."""
        table = self._tables.get(at)
        if table is None:
            if isinstance(node, TokenIn):
                hits = self.vocabulary.is_text(node.texts)
            else:
                hits = self.vocabulary.is_class(node.name)
            table = self._tables[at] = np.array(hits, dtype=np.bool_)
        return table

    def _window(self, at: int, node: Window, of: Numbers, step: _Step) -> Numbers:
        slot = self.window_slot[at]
        found = []
        for row, x in zip(step.rows, of.tolist(), strict=True):
            last = self.remember(row, slot, node.n, x)
            found.append(aggregate(node.kind, node.n, last))
        return step.column(found)

    def remember(self, row: Row, slot: int, n: int, x: float) -> list[float]:
        """Append a value to a row's window and return the window; the request's own lists stay as they are."""
        if row.windows is row.sequence.state.windows:
            mine = self.model
            row.windows = [list(w) for w in row.windows]
            row.windows += [[] for _ in range(len(row.windows), len(self.plan.models))]
            row.windows[mine] += [[] for _ in range(len(row.windows[mine]), len(self.window_slot))]
        windows = row.windows[self.model]
        windows[slot] = [*windows[slot][-(n - 1) :], x] if n > 1 else [x]
        return windows[slot]

    def _signal(self, node: Signal, step: _Step) -> Numbers:
        states = [row.sequence.state for row in step.rows]
        match node.name:
            case "position":
                return step.column([s.position for s in states])
            case "since_switch":
                return step.column([s.since_switch for s in states])
            case "switches":
                return step.column([s.switches for s in states])
            case "prompt_tokens":
                return step.column([row.sequence.n_prompt for row in step.rows])
            case "count":
                return step.column([s.counts[node.args[0]] for s in states])
            case "share":
                return step.column([s.counts[node.args[0]] / max(1, s.position) for s in states])
            case "chance":
                return self._chance(step)
            case _:
                return step.signal(node.name, tuple(node.args))

    def _chance(self, step: _Step) -> Numbers:
        seeds = kernels.seeds([row.sequence.sampling.seed for row in step.rows])
        at = torch.tensor([row.sequence.state.position for row in step.rows])
        drawn: NDArray[np.float64] = kernels.uniform(seeds, at, self.model, kernels.CHANCE).numpy()
        return drawn


class _Step:
    """Some rows of one output."""

    __slots__ = ("_at", "output", "rows")

    def __init__(self, rows: list[Row]) -> None:
        output = rows[0].output
        assert output is not None and output.tokens is not None
        self.rows = rows
        self.output = output
        # None where the rows are all of the output's, in order.
        self._at = [row.at for row in rows] if len(rows) < len(output.tokens) else None

    def tokens(self) -> NDArray[np.int64]:
        """Return the candidates."""
        assert self.output.tokens is not None
        ids: NDArray[np.int64] = self.output.tokens.cpu().numpy()
        return ids if self._at is None else ids[self._at]

    def pick(self, whole: torch.Tensor) -> Numbers:
        """Return these rows of numbers over all of the output's."""
        if whole.dtype not in (torch.float32, torch.float64):  # numpy has no bfloat16
            whole = whole.float()
        numbers: NDArray[np.float64] = whole.cpu().numpy().astype(np.float64)
        return numbers if self._at is None else numbers[self._at]

    def column(self, values: list[float] | list[int], is_bool: bool = False) -> Numbers:
        return np.array(values, dtype=np.bool_ if is_bool else np.float64)

    def constant(self, value: Value) -> Column:
        if isinstance(value, str):
            return [value] * len(self.rows)
        return self.column([value] * len(self.rows), isinstance(value, bool))

    def signal(self, name: str, args: tuple[int, ...]) -> Numbers:
        """Return a signal of the logits: [B]."""
        return self.pick(self.output.figure((name, args)))


def aggregate(kind: str, n: int, last: list[float]) -> float:
    """Return the aggregate of the last values, oldest first; there is at least one."""
    match kind:
        case "mean":
            return sum(last) / len(last)
        case "max":
            return max(last)
        case _:
            weight = 2.0 / (n + 1)
            running = last[0]
            for x in last[1:]:
                running = weight * x + (1.0 - weight) * running
            return running


def _load(at: int, node: Signal, step: _Step) -> Numbers:
    """Return a load signal, and write down for each row what it read."""
    for row in step.rows:
        row.loads[at] = float(row.queues[node.args[0]]) if node.args else row.elapsed_ms
    return step.column([row.loads[at] for row in step.rows])


def _arith(sign: str, left: Numbers, right: Numbers) -> Numbers:
    with np.errstate(all="ignore"):  # infinities and what comes of them are numbers like others
        match sign:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case _:
                by_zero = right == 0
                return np.where(by_zero, 0.0, left / np.where(by_zero, 1.0, right))


def _fields(node: RequestField, step: _Step) -> Column:
    found = [field(node, row.sequence.metadata) for row in step.rows]
    if isinstance(node.default, str):
        return [str(value) for value in found]
    return step.column([float(value) for value in found], isinstance(node.default, bool))
