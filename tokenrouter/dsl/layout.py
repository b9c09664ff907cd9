"""Laying out a `.route` text: indentation, spaces and blank lines; never the order or spelling of anything.

It works on the lossless tokens, so no comment can get lost, and keeps the author's line breaks, so laying out twice
changes nothing. A file keeps its byte-order mark, and its lines end as most of them did. The tree only tells where
statements begin. Texts with syntax errors are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tokenrouter.dsl import ast
from tokenrouter.dsl.lexer import MARK, Tokens
from tokenrouter.dsl.parse import Tree

_UNITS = {"NATS", "NATS_SQUARED", "MS", "TOKENS", "TOKENS_A_SECOND", "PERCENT"}
_OPERANDS = {"NAME", "NUMBER", "STRING", "TRUE", "FALSE", "RPAR"} | _UNITS
_TIGHT_BEFORE = {"COMMA", "COLON", "RPAR", "RSQB", "DOT", "PERCENT"}
_TIGHT_AFTER = {"LPAR", "LSQB", "DOT"}
_STATEMENTS = (
    ast.Header, ast.Import, ast.Model, ast.Head, ast.Param, ast.Var, ast.Signal, ast.Policy, ast.Test, ast.Start,
    ast.At, ast.Claim, ast.Objective, ast.Fallback, ast.Template, ast.Rule, ast.StartRule, ast.Case, ast.Property,
    ast.Share,
)  # fmt: skip


@dataclass(eq=False, slots=True)
class _Line:
    """One line: the tokens on it, a comment at its end, and how deep it stands."""

    depth: int
    continues: bool  # it goes on with a statement of an earlier line
    tokens: list[int] = field(default_factory=list)
    comment: str = ""

    def is_blank(self) -> bool:
        return not self.tokens and not self.comment


def layout(tree: Tree) -> str:
    """Return the text of a tree without problems, laid out."""
    assert not tree.problems, tree.problems
    starts = {node.start for node in _nodes(tree.file) if isinstance(node, _STATEMENTS)}
    lines = list(_lines(tree.tokens, starts))
    texts = [_parts(tree.tokens, line, starts) for line in lines]
    _align(tree.tokens, lines, texts)
    text = _join(tree.tokens, lines, texts).replace("\n", _line_end(tree.source.text))
    return MARK + text if tree.source.text.startswith(MARK) else text


def _line_end(text: str) -> str:
    """Return how most lines of a text end."""
    both = text.count("\r\n")
    ends = {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}
    return max(ends, key=lambda end: ends[end])


def _nodes(node: object) -> Iterator[ast.Node]:
    if isinstance(node, ast.Node):
        yield node
        for name in node.__struct_fields__:
            yield from _nodes(getattr(node, name))
    elif isinstance(node, tuple):
        for item in node:
            yield from _nodes(item)


def _lines(tokens: Tokens, starts: set[int]) -> Iterator[_Line]:
    """Yield the lines as the author broke them."""
    depth = 0
    line: _Line | None = None
    for token, kind in enumerate(tokens.kinds):
        if kind == "$END":
            break
        if kind == "SPACE":
            breaks = tokens.text(token).replace("\r\n", "\n").replace("\r", "\n").count("\n")
            if breaks and line is not None:
                yield line
                line = None
            if breaks > 1:
                yield _Line(depth, False)
            continue
        if line is None:
            begins = kind in ("RBRACE", "COMMENT") or tokens.starts[token] in starts
            line = _Line(depth - (kind == "RBRACE"), not begins)
        if kind == "COMMENT":
            line.comment = tokens.text(token).rstrip()
        else:
            line.tokens.append(token)
        depth += (kind == "LBRACE") - (kind == "RBRACE")
    if line is not None:
        yield line


def _parts(tokens: Tokens, line: _Line, starts: set[int]) -> list[str]:
    """Return the tokens of a line as texts, each with the space before it."""
    return [
        ("" if at == 0 else _gap(tokens, line.tokens[at - 1], token, starts)) + tokens.text(token)
        for at, token in enumerate(line.tokens)
    ]


def _gap(tokens: Tokens, before: int, token: int, starts: set[int]) -> str:
    """Return what stands between two tokens of one line."""
    left, right = tokens.kinds[before], tokens.kinds[token]
    if right in _TIGHT_BEFORE or left in _TIGHT_AFTER:
        return ""
    if right == "LPAR" and left == "NAME":
        return ""
    if left == "LBRACE":
        return "" if right == "RBRACE" or _is_set(tokens, before) else " "
    if right == "RBRACE":
        return "" if _is_set(tokens, _opener(tokens, token)) else " "
    if left == "SIGN" and _before(tokens, before) not in _OPERANDS:
        return ""
    return "  " if tokens.starts[token] in starts and left != "COMMA" else " "


def _before(tokens: Tokens, token: int) -> str:
    """Return the kind of the real token before one."""
    at = token - 1
    while at >= 0 and tokens.kinds[at] in ("SPACE", "COMMENT"):
        at -= 1
    return tokens.kinds[at] if at >= 0 else "$END"


def _is_set(tokens: Tokens, brace: int) -> bool:
    """Return whether a `{` opens a list of words, as in `token in {"a"}` and `small.{hidden}`."""
    return _before(tokens, brace) in ("IN", "DOT")


def _opener(tokens: Tokens, closer: int) -> int:
    """Return the `{` that a `}` closes."""
    depth, at = 1, closer
    while depth:
        at -= 1
        depth += (tokens.kinds[at] == "RBRACE") - (tokens.kinds[at] == "LBRACE")
    return at


def _align(tokens: Tokens, lines: list[_Line], texts: list[list[str]]) -> None:
    """Put the `->` of neighbouring rules under each other, and the `{` of neighbouring models."""
    for first, sign in (({"WHEN", "OTHERWISE"}, "ARROW"), ({"MODEL"}, "LBRACE")):
        run: list[tuple[int, int]] = []  # line, and which of its tokens the sign is
        depth = -1
        for at, line in enumerate([*lines, _Line(-1, False)]):
            kinds = [tokens.kinds[token] for token in line.tokens]
            fits = bool(kinds) and kinds[0] in first and sign in kinds
            if not fits or line.depth != depth:
                _pad(run, texts)
                run = []
            if fits:
                run.append((at, kinds.index(sign)))
                depth = line.depth


def _pad(run: list[tuple[int, int]], texts: list[list[str]]) -> None:
    widths = [len("".join(texts[line][:place])) for line, place in run]
    for (line, place), width in zip(run, widths, strict=True):
        texts[line][place] = " " * (max(widths) - width) + texts[line][place]


def _join(tokens: Tokens, lines: list[_Line], texts: list[list[str]]) -> str:
    out: list[str] = []
    opened = True  # nothing, or an opening line, stands above: no empty line there
    for line, parts in zip(lines, texts, strict=True):
        if line.is_blank():
            if not opened and out[-1]:
                out.append("")
            continue
        if line.tokens and tokens.kinds[line.tokens[0]] == "RBRACE" and out and not out[-1]:
            out.pop()
        indent = "  " * (line.depth + (2 if line.continues else 0))
        body = "".join(parts)
        comment = f"  {line.comment}" if line.comment and body else line.comment
        out.append(indent + body + comment)
        opened = bool(line.tokens) and tokens.kinds[line.tokens[-1]] == "LBRACE"
    while out and not out[-1]:
        out.pop()
    return "\n".join(out) + "\n" if out else ""
