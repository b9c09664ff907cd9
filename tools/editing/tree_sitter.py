"""What the tree-sitter grammar takes from the tables of the language."""

import json
import re
from collections.abc import Iterable

from editing import words
from tokenrouter.dsl.table import table

COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")


def language() -> str:
    """Return what grammar.js reads."""
    read = {name: table().patterns[name] for name in ("NAME", "NUMBER", "STRING", "COMMENT")}
    made = {"patterns": read, "units": words.UNITS, "comparisons": COMPARISONS}
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def header() -> str:
    """Return what src/scanner.c reads."""
    every = sorted(words.WORDS)
    quoted = "\n".join(f'    "{word}",' for word in every)
    return (
        "// Written by tools/editors.py from the tables of the language; do not edit.\n"
        f"#define LONGEST_WORD {max(map(len, every))}\n"
        f"static const char *const WORDS[] = {{\n{quoted}\n}};\n"
    )


# A kind is one of the server's (`tokenrouter.lsp.colour`), or a group of its keywords. No place in a text is given two kinds, so that
# it does not matter whether an editor takes the first pattern that fits or the last. What stands alone in an expression is a variable,
# if it is no signal: a head, a param and a derived signal look the same there.
HIGHLIGHTS = """\
{declaring} @keyword.declaring
{actions} @keyword.action
(stop) @keyword.action
{logic} @keyword.logic
{rest} @keyword.other
(boolean) @keyword.constant

(comment) @comment
(string) @string
(number) @number
(unit) @type
{operators} @operator
{brackets} @bracket
{delimiters} @delimiter

(model name: (name) @class)
(_ model: (name) @class)
(head name: (name) @function)
(policy name: (name) @namespace)
(test policy: (name) @namespace)
(param name: (name) @parameter)
(var name: (name) @variable)
(set variable: (name) @variable)
(signal name: (name) @property)
(property key: (name) @property)
(property value: (name) @enumMember)
(part part: (name) @enumMember)
(objective goal: (name) @enumMember)
(_ class: (name) @enumMember)
(param type: (name) @type)
(var type: (name) @type)

(call function: (name) @function.defaultLibrary)
(field of: (name) @enumMember)
(field name: (name) @property)
(call
  function: (name) @function.defaultLibrary
  (argument (name) @class)
  (#match? @function.defaultLibrary {of_models}))
(call
  function: (name) @function.defaultLibrary
  (argument (name) @variable)
  (#not-match? @function.defaultLibrary {of_models})
  (#not-match? @variable {builtins}))
(call
  function: (name) @function.defaultLibrary
  (argument (name) @function.defaultLibrary.argument)
  (#not-match? @function.defaultLibrary {of_models})
  (#match? @function.defaultLibrary.argument {builtins}))
((reference (name) @function.defaultLibrary)
  (#match? @function.defaultLibrary {builtins}))
((reference (name) @variable)
  (#not-match? @variable {builtins}))
"""
COMMON = {  # names of captures that tree-sitter's own command, Neovim and Zed know
    "keyword.declaring": "keyword",
    "keyword.action": "keyword",
    "keyword.logic": "keyword.operator",
    "keyword.other": "keyword",
    "keyword.constant": "boolean",
    "bracket": "punctuation.bracket",
    "delimiter": "punctuation.delimiter",
    "class": "type",
    "namespace": "module",
    "parameter": "variable.parameter",
    "enumMember": "constant",
    "type": "type.builtin",
    "function.defaultLibrary": "function.builtin",
    "function.defaultLibrary.argument": "function.builtin.argument",
}
HELIX = {
    **COMMON,
    "keyword.declaring": "keyword.storage.type",
    "keyword.action": "keyword.control",
    "keyword.constant": "constant.builtin.boolean",
    "number": "constant.numeric",
    "namespace": "namespace",
    "property": "variable.other.member",
    "enumMember": "type.enum.variant",
}
ZED = {**COMMON, "namespace": "title", "parameter": "variable.special"}


def highlights(names: dict[str, str]) -> str:
    """Return the query for colours, with the names that an editor has for the kinds."""

    def one_of(items: Iterable[str]) -> str:
        return "[" + " ".join(f'"{item}"' for item in items) + "]"

    def texts(items: Iterable[str]) -> str:
        return f'"^({"|".join(items)})$"'

    rest = [word for word in words.REST if word not in words.LOGIC]
    made = HIGHLIGHTS.format(
        declaring=one_of(words.DECLARING),
        actions=one_of(a for a in (*words.ACTIONS, *words.PLANNED_WORDS) if a != "stop"),
        logic=one_of(words.LOGIC),
        rest=one_of(rest),
        operators=one_of(("->", "=", "+", "-", "*", "/", *COMPARISONS)),
        brackets=one_of("{}[]()"),
        delimiters=one_of(",:."),
        of_models=texts(words.OF_MODELS),
        builtins=texts(words.BUILTINS),
    )
    return "; Written by tools/editors.py; do not edit.\n\n" + re.sub(
        r"(?<=@)[a-z]\w*(?:\.\w+)*", lambda kind: names.get(kind[0], kind[0]), made
    )
