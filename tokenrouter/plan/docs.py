"""The field tables of docs/plan.md, made from the structs and the comments beside their fields.

`python -m tokenrouter.plan.docs docs/plan.md` writes the tables anew between the two marks; a test compares them.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

BEGIN = "<!-- tables: made by `python -m tokenrouter.plan.docs docs/plan.md` -->"
END = "<!-- end of tables -->"
SOURCES = ("structs.py", "predictions.py", "program.py", "taskgraph.py")


def tables() -> str:
    """Return the tables of all structs as Markdown, in the order of the modules."""
    return "\n\n".join(
        table for name in SOURCES for table in _tables(Path(__file__).with_name(name))
    )


def _tables(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            yield "\n".join(_table(node, comments))


def _table(node: ast.ClassDef, comments: dict[int, str]) -> Iterator[str]:
    tag = _tag(node)
    yield f"### {node.name}" + (f" (`{tag}`)" if tag else "")
    yield ""
    yield (ast.get_docstring(node) or "").replace("\n", " ")
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    if not fields:
        return
    yield ""
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for field in fields:
        lines = range(field.lineno, (field.end_lineno or field.lineno) + 1)
        meaning = " ".join(comments[line] for line in lines if line in comments)
        kind = ast.unparse(field.annotation).replace("|", "\\|")
        default = "" if field.value is None else f"`{ast.unparse(field.value)}`"
        yield f"| `{ast.unparse(field.target)}` | `{kind}` | {default} | {meaning} |"


def _tag(node: ast.ClassDef) -> str:
    """Return how a variant is told apart in JSON, as in `"op": "const"`; '' for what has one kind only."""
    given = {
        keyword.arg: keyword.value.value
        for keyword in node.keywords
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }
    return f'"{given["tag_field"]}": "{given["tag"]}"' if "tag" in given else ""


def renew(page: str) -> str:
    """Return a page with its tables made anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{tail}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(renew(target.read_text(encoding="utf-8")), encoding="utf-8")
