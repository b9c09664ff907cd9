"""Literals of the language: how they are written, and what operations on them give.

Needed by compiler, plan and runtime alike; imports nothing, since `trc check` starts with it.
"""

from __future__ import annotations

Value = bool | float | str


def number(value: float) -> str:
    """Return a number the way a person writes it."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def quote(text: str) -> str:
    """Return text as a string literal of the language."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


def value_text(value: Value) -> str:
    """Return a literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else number(value)


def compare(sign: str, left: Value, right: Value) -> bool:
    """Return whether a comparison of two values of one type holds."""
    if sign in ("==", "!="):
        return (left == right) == (sign == "==")
    assert not isinstance(left, str) and not isinstance(right, str), (left, right)
    match sign:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def arithmetic(sign: str, left: float, right: float) -> float:
    """Return the value of an operation: x / 0 is 0."""
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right if right else 0.0
