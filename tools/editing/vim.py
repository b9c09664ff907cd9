"""The syntax file of Vim and Neovim."""

from editing import words
from tokenrouter.dsl.table import table

LINKS = {
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


def syntax() -> str:
    """Return the file."""
    lines = [
        '" Written by tools/editors.py from the tables of the language; do not edit.',
        'if exists("b:current_syntax")',
        "  finish",
        "endif",
        "",
        "syntax case match",
        "syntax keyword routeDeclare " + " ".join(words.DECLARING),
        "syntax keyword routeKeyword " + " ".join(words.REST),
        "syntax keyword routeAction " + " ".join((*words.ACTIONS, *words.PLANNED_WORDS)),
        "syntax keyword routeUnit " + " ".join(words.UNIT_WORDS),
        "syntax keyword routeConstant " + " ".join(words.CONSTANTS),
        "syntax keyword routeSignal " + " ".join(words.BUILTINS),
        "syntax keyword routeClass contained " + " ".join(words.CLASSES),
        "syntax keyword routeProperty contained " + " ".join(words.PROPERTIES),
        r"syntax match routeIs /\<is\>\s\+\%(not\s\+\)\?\w\+/ contains=routeClass,routeKeyword",
        r"syntax region routeBlock matchgroup=routeBrace start=/\%(\<\%(model\|head\)\s\+\w\+\s*\)\@<={/ end=/}/ "
        "contains=routeProperty,routeString,routeNumber,routeComment",
        rf"syntax match routeNumber /{_pattern(table().patterns['NUMBER'])}/",
        r'syntax region routeString start=/"/ skip=/\\./ end=/"/ oneline',
        r"syntax match routeComment /#.*/ contains=@Spell",
        r"syntax match routeOperator /->\|[<>=!]=\|[<>=+*\/-]/",
        "",
    ]
    lines += [f"highlight default link route{name} {group}" for name, group in LINKS.items()]
    return "\n".join([*lines, "", 'let b:current_syntax = "route"', ""])


def _pattern(pattern: str) -> str:
    """Return a pattern of the lexer as Vim's «very magic» writes it."""
    pattern = pattern.replace("(?:", "%(")
    return r"\v<" + pattern.replace("?", "{0,1}").replace("/", r"\/")
