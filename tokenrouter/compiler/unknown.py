"""Nodes of a program where only some values are known: True, False, a number, a text, or None for «not known»."""

from __future__ import annotations

from tokenrouter.plan.literal import arithmetic, compare
from tokenrouter.plan.structs import AllOf, AnyOf, Arith, Compare, Const, Node, Not, Value, Window

Found = Value | None


def values(nodes: list[Node], given: dict[int, Value]) -> list[Found]:
    """Return the value of every node; what is given stands above what could be computed."""
    out: list[Found] = []
    for at, node in enumerate(nodes):
        out.append(given[at] if at in given else _value(node, out))
    return out


def _value(node: Node, out: list[Found]) -> Found:
    match node:
        case Const():
            return node.value
        case Window():
            return out[
                node.of
            ]  # of a request's first step here, all its aggregates are its one value
        case AllOf():
            return _all([out[of] for of in node.of])
        case AnyOf():
            found = _all([_not(out[of]) for of in node.of])
            return _not(found)
        case Not():
            return _not(out[node.of])
        case Compare():
            left, right = out[node.left], out[node.right]
            return None if left is None or right is None else compare(node.sign, left, right)
        case Arith():
            left, right = out[node.left], out[node.right]
            if left is None or right is None:
                return None
            return arithmetic(node.sign, float(left), float(right))
        case _:
            return None


def _all(parts: list[Found]) -> Found:
    if any(part is False for part in parts):
        return False
    return None if None in parts else True


def _not(found: Found) -> Found:
    return None if found is None else not found
