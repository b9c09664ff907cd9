"""Write the lists of docs/language.md that are made from the code: signals and codes. `--check` exits with 1 where they differ."""

import re
import sys
from pathlib import Path

from tokenrouter.diagnostics import CODES
from tokenrouter.dsl.names import usage
from tokenrouter.signals import SIGNALS

PAGE = Path(__file__).parents[1] / "docs/language.md"


def signals() -> str:
    """Return the table of signals."""
    rows = ["| signal | unit | range | meaning |", "|---|---|---|---|"]
    for name, kind in SIGNALS.items():
        written = usage(name) if kind.args else name
        more = "; a load signal" if kind.needs == "load" else ""
        more += "; also in `start`" if kind.in_start else ""
        span = f"{kind.low:g} to {kind.high:g}"
        rows.append(f"| `{written}` | {kind.unit} | {span} | {kind.meaning}{more} |")
    return "\n".join(rows)


def codes() -> str:
    """Return the table of codes."""
    rows = ["| code | severity | what it is |", "|---|---|---|"]
    for code, what in CODES.items():
        rows.append(f"| [{code}](diagnostics/{code}.md) | {what.severity} | {what.title} |")
    return "\n".join(rows)


def written(text: str) -> str:
    """Return the page with its lists made anew."""
    for name, table in (("signals", signals()), ("codes", codes())):
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = between.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    return text


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if written(old) == old else 1)
    PAGE.write_text(written(old), encoding="utf-8")
