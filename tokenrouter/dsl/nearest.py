"""The nearest spelling of a name among known ones."""

from __future__ import annotations

from collections.abc import Iterable


def distance(a: str, b: str, most: int) -> int:
    """Return how many letters to add, drop, change or swap with a neighbour lead from a to b; `most` + 1 if more."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is meant by all likelihood; None where none is near."""
    most = min(len(name) - 1, 1 if len(name) < 4 else 2 if len(name) < 8 else 3)
    wanted = name.lower()
    ranked = sorted((distance(wanted, other.lower(), most), other) for other in known)
    near = [other for far, other in ranked if far <= min(most, max(1, len(other) - 1))]
    return near[0] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a help line: the nearest name, else all of them where they are few; '' where there are none."""
    names = sorted(set(known))
    near = nearest(name, names)
    if near is not None:
        return f"did you mean `{near}`?"
    if not names or len(names) > 12:
        return ""
    return "there " + ("is " if len(names) == 1 else "are ") + ", ".join(f"`{n}`" for n in names)
