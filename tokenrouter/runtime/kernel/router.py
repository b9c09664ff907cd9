"""A model's route program run as a kernel: what `Router` does with torch operations, in one launch.

`launch` works on tensors only, so a captured graph can hold it: `inputs` makes what the host knows, `take` gives rows what came
back. Without a graph, `evaluate` does all three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tokenrouter.plan.nodes import closure
from tokenrouter.plan.structs import (
    Borrow,
    ClassIs,
    Compare,
    Const,
    Node,
    ParamRef,
    Plan,
    RequestField,
    Signal,
    TokenIn,
    VarRef,
    Window,
)
from tokenrouter.runtime.evaluate import Head, Values
from tokenrouter.runtime.kernel.layout import (
    COUNTS,
    KEEP,
    RULE,
    TARGET,
    UNTILS,
    layout,
    why_not,
)
from tokenrouter.runtime.kernel.load import load_kernel
from tokenrouter.runtime.kernel.nodes import Names
from tokenrouter.runtime.kernel.source import parts
from tokenrouter.runtime.route import Router
from tokenrouter.runtime.row import Row
from tokenrouter.runtime.start import COMPARE, field
from tokenrouter.runtime.state import Decision, whole
from tokenrouter.runtime.vocabulary import Vocabulary

FIELDS = 8  # numbers of one part's record, before its largest logits
Column = Callable[[Row], float]


class Inputs(NamedTuple):
    """What the host knows of B rows; see `layout`."""

    words: Tensor  # [B, 3 + windows] int64
    numbers: Tensor  # [B, C] float64
    past: Tensor  # [B, H] float64


class Routed(NamedTuple):
    """What a kernel made of B rows; see `layout`."""

    decided: Tensor  # [B, 4] int32
    values: Tensor  # [B, N] float64


class _Taken(Values):
    """The results of some rows, as lists."""

    __slots__ = ("decided", "told")

    def __init__(self, routed: Routed) -> None:
        super().__init__()
        self.decided: list[list[int]] = routed.decided.tolist()
        self.told: list[list[float]] = routed.values.tolist()


class CompiledRouter(Router):
    """The route program of one model, as a kernel on a device."""

    def __init__(
        self,
        plan: Plan,
        model: int,
        vocabulary: Vocabulary,
        heads: dict[int, Head] | None = None,
        device: torch.device | str = "cuda",
    ) -> None:
        super().__init__(plan, model, vocabulary, heads)
        assert why_not(plan, model) is None, why_not(plan, model)
        self.device = torch.device(device)
        self.layout = layout(plan, model)
        self.kernel = load_kernel(plan, model)
        names = Names(plan, model, self.layout)
        self._parts = parts(names)
        self._record = FIELDS + names.slots
        nodes = self.evaluator.nodes
        self._columns = [self._column(at, nodes[at]) for at in self.layout.numbers]
        tables = [self._table(nodes[at]) for at in self.layout.tables]
        self._tables = torch.tensor(tables or [[False]], dtype=torch.uint8, device=self.device)
        self._counters = torch.zeros(0, dtype=torch.int32, device=self.device)
        untils = plan.programs[model].untils
        self._needed = {at: set(closure(nodes, [node])) for at, node in enumerate(untils)}
        self._own = set(self.own)

    def _table(self, node: Node) -> list[bool]:
        """Return by id whether a text or class node holds."""
        if isinstance(node, TokenIn):
            return self.evaluator.vocabulary.is_text(node.texts)
        assert isinstance(node, ClassIs)
        return self.evaluator.vocabulary.is_class(node.name)

    def _column(self, at: int, node: Node) -> Column:
        """Return how the host knows a node."""
        match node:
            case ParamRef(param=param):
                return lambda row: row.sequence.params[param]
            case VarRef(var=var):
                return lambda row: row.sequence.state.vars[var]
            case RequestField():
                return lambda row: float(field(node, row.sequence.metadata))
            case Compare(sign=sign, left=left, right=right):
                compare, nodes = COMPARE[sign], self.evaluator.nodes
                return lambda row: compare(_text(nodes[left], row), _text(nodes[right], row))
            case Signal(name="queue", args=[peer]):
                return lambda row: float(row.queues[peer])
            case Signal(name="elapsed"):
                return lambda row: row.elapsed_ms
            case Signal():
                return STATE[node.name](node)
            case _:
                raise AssertionError(f"{node!r} is not the host's")

    def reserve(self, rows: int) -> None:
        """Make room for as many rows; before a graph is captured that holds them."""
        if len(self._counters) < rows:
            self._counters = torch.zeros(rows, dtype=torch.int32, device=self.device)

    def inputs(self, rows: list[Row], size: int | None = None) -> Inputs:
        """Return what the host knows of rows, filled up with zeros to a size."""
        size = len(rows) if size is None else size
        words = torch.zeros(size, COUNTS + len(self.layout.windows), dtype=torch.int64)
        numbers = torch.zeros(size, len(self._columns), dtype=torch.float64)
        past = torch.zeros(size, self.layout.width, dtype=torch.float64)
        if rows:
            told = [[column(row) for column in self._columns] for row in rows]
            numbers[: len(rows)] = torch.tensor(told, dtype=torch.float64)
            found = [self._windows(row) for row in rows]
            words[: len(rows)] = torch.tensor(
                [[*_words(row), *counts] for row, (counts, _) in zip(rows, found, strict=True)]
            )
            past[: len(rows)] = torch.tensor([values for _, values in found], dtype=torch.float64)
        return Inputs(words, numbers, past)

    def _windows(self, row: Row) -> tuple[list[int], list[float]]:
        """Return how many values each window holds before this step, and all values."""
        counts = [0] * len(self.layout.windows)
        values = [0.0] * self.layout.width
        mine = row.windows[self.model] if len(row.windows) > self.model else []
        for slot, (at, last) in enumerate(zip(self.layout.windows, mine, strict=False)):
            node = self.evaluator.nodes[at]
            assert isinstance(node, Window)
            past = last[-(node.n - 1) :] if node.n > 1 else []
            counts[slot] = len(past)
            begin = self.layout.past[slot]
            values[begin : begin + len(past)] = past
        return counts, values

    def launch(
        self, logits: Tensor, tokens: Tensor, inputs: Inputs, heads: Tensor | None = None
    ) -> Routed:
        """Decide on the device: logits [B, V or more], tokens [B] int64, heads [B, heads] float64."""
        rows = len(tokens)
        self.reserve(rows)
        wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
        size = (rows, max(1, self._parts), self._record)
        records = torch.empty(size, dtype=wide, device=self.device)
        decided = torch.empty(rows, 4, dtype=torch.int32, device=self.device)
        shape = (rows, len(self.layout.values))
        values = torch.empty(shape, dtype=torch.float64, device=self.device)
        if heads is None:
            heads = torch.empty(rows, 0, dtype=torch.float64, device=self.device)
        assert heads.shape == (rows, len(self.layout.heads)), heads.shape
        assert logits.stride(1) == 1, logits.stride()
        self.kernel[rows, max(1, self._parts)](
            logits,
            tokens,
            *inputs,
            heads,
            self._tables,
            records,
            self._counters,
            decided,
            values,
            logits.stride(0),
            num_warps=8 if self._parts else 1,
            enable_fp_fusion=False,  # a product and a sum are rounded each, as in torch
        )
        return Routed(decided, values)

    def evaluate(self, rows: list[Row]) -> None:
        """Run the kernel for rows of one output, in any order, and give them its results."""
        rows = [row for row in rows if row.values is None and self._reads(row)]
        if not rows:
            return
        output = rows[0].output
        assert output is not None and output.tokens is not None
        if output.done is not None:
            chosen = [row.at for row in rows]
            self.take(rows, Routed(output.done.decided[chosen], output.done.values[chosen]))
            return
        at = torch.tensor([row.at for row in rows], device=self.device)
        heads = [self.evaluator.heads[head](output)[at].double() for head in self.layout.heads]
        inputs = Inputs(*(tensor.to(self.device) for tensor in self.inputs(rows)))
        stacked = torch.stack(heads, 1) if heads else None
        self.take(rows, self.launch(output.raw[at], output.tokens[at], inputs, stacked))

    def _reads(self, row: Row) -> bool:
        state = row.sequence.state
        return state.home is None or state.until is not None

    def take(self, rows: list[Row], routed: Routed) -> None:
        """Give rows, the first of the kernel's, their results: to read with `decide` and `reached`."""
        taken = _Taken(Routed(routed.decided.cpu(), routed.values.cpu()))
        for at, row in enumerate(rows):
            row.values, row.values_at = taken, at
            state = row.sequence.state
            needed = self._own if state.home is None else self._needed.get(state.until or 0, set())
            values = dict(zip(self.layout.values, taken.told[at], strict=True))
            for slot, node in enumerate(self.layout.windows):
                window = self.evaluator.nodes[node]
                if node in needed and isinstance(window, Window):
                    self.evaluator.remember(row, slot, window.n, values[window.of])
            for node, column in zip(self.layout.numbers, self._columns, strict=True):
                if node in needed and self._is_load(node):
                    row.loads[node] = column(row)
            if row.sequence.traced:
                row.signals |= {
                    text: values[node] for node, text in self.told.items() if node in needed
                }

    def _is_load(self, at: int) -> bool:
        node = self.evaluator.nodes[at]
        return isinstance(node, Signal) and node.name in ("queue", "elapsed")

    def reached(self, row: Row) -> bool:
        """Return whether the `until` of a row's borrowed stay holds on this step."""
        until = row.sequence.state.until
        if until is None or not isinstance(row.values, _Taken):
            return False
        return bool(row.values.decided[row.values_at][UNTILS] >> until & 1)

    def decide(self, rows: list[Row]) -> None:
        """Give each row the decision of its rule; rows that no kernel saw are decided as `Router` does."""
        super().decide([row for row in rows if not isinstance(row.values, _Taken)])
        for row in rows:
            if isinstance(row.values, _Taken):
                row.decision = self._taken(row, row.values)

    def _taken(self, row: Row, taken: _Taken) -> Decision:
        decided = taken.decided[row.values_at]
        index, keep, target = decided[RULE], bool(decided[KEEP]), decided[TARGET]
        if index == len(self.rules):
            return Decision(True, self.model)
        rule = self.rules[index]
        values = dict(zip(self.layout.values, taken.told[row.values_at], strict=True))
        variables = None
        if rule.sets:
            variables = row.sequence.state.vars.copy()
            for assign in rule.sets:
                variables[assign.var] = values[assign.value]
        most, until = 0, None
        if isinstance(rule.go, Borrow):
            most, until = whole(values[rule.go.most]), rule.go.until
        return Decision(keep, None if target < 0 else target, index, most, until, variables)


def _words(row: Row) -> tuple[int, int, int]:
    """Return seed, position and the models tried, as int64 of the same bits."""
    state, seed = row.sequence.state, row.sequence.sampling.seed
    return seed - (1 << 64) if seed >= 1 << 63 else seed, state.position, state.tried


def _text(node: Node, row: Row) -> str:
    """Return the text of a text node."""
    if isinstance(node, RequestField):
        return str(field(node, row.sequence.metadata))
    assert isinstance(node, Const) and isinstance(node.value, str), node
    return node.value


def _of_state(name: str) -> Callable[[Signal], Column]:
    return lambda node: lambda row: getattr(row.sequence.state, name)


def _count(node: Signal) -> Column:
    return lambda row: row.sequence.state.counts[node.args[0]]


def _share(node: Signal) -> Column:
    def share(row: Row) -> float:
        state = row.sequence.state
        return state.counts[node.args[0]] / max(1, state.position)

    return share


STATE: dict[str, Callable[[Signal], Column]] = {
    "position": _of_state("position"),
    "since_switch": _of_state("since_switch"),
    "switches": _of_state("switches"),
    "prompt_tokens": lambda node: lambda row: row.sequence.n_prompt,
    "count": _count,
    "share": _share,
}
