"""Write the word lists of editors anew, from the grammar's tables and the catalogue of signals.

    python tools/editors.py           write the files
    python tools/editors.py --check   1 where a file would change

What an editor colours before, or without, the language server is in editors/; a test runs the check.
"""

import sys
from pathlib import Path

from tokenrouter.dsl.declare import HEAD_PROPERTIES, MODEL_PROPERTIES
from tokenrouter.dsl.expected import ACTIONS, PLANNED, UNITS
from tokenrouter.dsl.table import table
from tokenrouter.signals import CLASSES, SIGNALS, WINDOWS

ROOT = Path(__file__).parents[1]
DECLARING = ("route", "import", "model", "head", "param", "var", "signal", "policy", "test")
CONSTANTS = ("true", "false")


def vim() -> str:
    """Return the syntax file of Vim and Neovim."""
    words = set(table().words)
    units = [unit for unit in UNITS if unit in words]
    rest = words - {*DECLARING, *ACTIONS, *PLANNED, *CONSTANTS, *units}
    lines = [
        '" Written by tools/editors.py from the tables of the language; do not edit.',
        'if exists("b:current_syntax")',
        "  finish",
        "endif",
        "",
        "syntax case match",
        "syntax keyword routeDeclare " + " ".join(DECLARING),
        "syntax keyword routeKeyword " + " ".join(sorted(rest)),
        "syntax keyword routeAction " + " ".join((*ACTIONS, *sorted(set(PLANNED) & words))),
        "syntax keyword routeUnit " + " ".join(units),
        "syntax keyword routeConstant " + " ".join(CONSTANTS),
        "syntax keyword routeSignal " + " ".join((*SIGNALS, *WINDOWS, "token", "class")),
        "syntax keyword routeClass contained " + " ".join(CLASSES),
        "syntax keyword routeProperty contained " + " ".join((*MODEL_PROPERTIES, *HEAD_PROPERTIES)),
        r"syntax match routeIs /\<is\>\s\+\%(not\s\+\)\?\w\+/ contains=routeClass,routeKeyword",
        r"syntax region routeBlock matchgroup=routeBrace start=/\%(\<\%(model\|head\)\s\+\w\+\s*\)\@<={/ end=/}/ "
        "contains=routeProperty,routeString,routeNumber,routeComment",
        rf"syntax match routeNumber /{_vim_pattern(table().patterns['NUMBER'])}/",
        r'syntax region routeString start=/"/ skip=/\\./ end=/"/ oneline',
        r"syntax match routeComment /#.*/ contains=@Spell",
        r"syntax match routeOperator /->\|[<>=!]=\|[<>=+*\/-]/",
        "",
    ]
    links = {
        "Declare": "Structure",
        "Keyword": "Keyword",
        "Action": "Statement",
        "Unit": "Type",
        "Constant": "Boolean",
        "Signal": "Function",
        "Class": "Constant",
        "Property": "Identifier",
        "Number": "Number",
        "String": "String",
        "Comment": "Comment",
        "Operator": "Operator",
    }
    lines += [f"highlight default link route{name} {group}" for name, group in links.items()]
    return "\n".join([*lines, "", 'let b:current_syntax = "route"', ""])


def _vim_pattern(pattern: str) -> str:
    """Return a pattern of the lexer as Vim's «very magic» writes it."""
    return r"\v<" + pattern.replace("?", "{0,1}").replace("/", r"\/")


FILES = {"editors/neovim/syntax/route.vim": vim}


def main() -> int:
    """Write or compare every file."""
    stale = [
        name
        for name, make in FILES.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_text(encoding="utf-8") != make()
    ]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is stale: run tools/editors.py", file=sys.stderr)
        return int(bool(stale))
    for name in stale:
        (ROOT / name).write_text(FILES[name](), encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
