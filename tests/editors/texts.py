"""Policies that are in the repository, and what is colour in them."""

import re
from itertools import pairwise
from pathlib import Path

from tokenrouter.dsl.load import check_source
from tokenrouter.lsp.book import Book, uri_of
from tokenrouter.lsp.colour import MODIFIERS, TYPES, tokens

ROOT = Path(__file__).parents[2]


def sound():
    """Return every policy file of the examples and tests, and every sound policy of the docs, by name."""
    found = {
        path.name: path.read_text(encoding="utf-8")
        for folder in ("examples", "tests/e2e/routes")
        for path in sorted((ROOT / folder).glob("*.route"))
    }
    for page in sorted((ROOT / "docs").rglob("*.md")):
        blocks = re.findall(r"^```route\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for number, block in enumerate(blocks):
            if not any(d.severity == "error" for d in check_source(block)):
                found[f"{page.stem}-{number}.route"] = block
    return found


def semantic(path):
    """Return, line by line, what the server says of each character: a kind of token, or None."""
    document = Book().document(uri_of(str(path)))
    lines = [[None] * len(line) for line in document.text.split("\n")]
    packed = tokens(document)
    line = column = 0
    for i in range(0, len(packed), 5):
        down, right, length, kind, modifiers = packed[i : i + 5]
        line, column = line + down, right + (0 if down else column)
        name = TYPES[kind]
        if name == "function" and modifiers >> MODIFIERS.index("defaultLibrary") & 1:
            name += ".defaultLibrary"
        lines[line][column : column + length] = [name] * length
    return lines


def runs(kinds):
    """Yield start, end and kind of each run of equal kinds."""
    cuts = [0, *(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]), len(kinds)]
    for start, end in pairwise(cuts):
        if end > start:
            yield start, end, kinds[start]
