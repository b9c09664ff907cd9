"""What an answer must follow: the four ways to ask for it, and the one grammar that they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tokenrouter.runtime import grammar
from tokenrouter.server.errors import bad_request
from tokenrouter.server.protocol import GenerationRequest

MAX_GRAMMAR_CHARS = 1 << 16
ENGINES_OWN = "x-guidance"  # would let a schema ask for what it says not to be kept to


class Guide(NamedTuple):
    """A grammar in a client's words."""

    field: str  # that asks for it
    text: str
    spell: Callable[[str], str]  # from the text to the grammar; raises GrammarError


def guide(request: GenerationRequest) -> Guide | None:
    """Return what a request's answer must follow; None where it is free."""
    asked = [_formatted(request)]
    if request.regex is not None:
        asked.append(Guide("regex", request.regex, grammar.of_regex))
    if request.grammar is not None:
        asked.append(Guide("grammar", request.grammar, grammar.of_lark))
    found = [each for each in asked if each is not None]
    if not found:
        return None
    if len(found) > 1:
        both = " and ".join(f"`{each.field}`" for each in found)
        raise bad_request(f"{both} exclude each other", found[-1].field)
    [one] = found
    if request.ignore_eos:
        raise bad_request(
            f"`ignore_eos` and `{one.field}` exclude each other: a grammar ends by itself",
            "ignore_eos",
        )
    if not one.text:
        raise bad_request(f"`{one.field}` is empty", one.field)
    if len(one.text) > MAX_GRAMMAR_CHARS:
        raise bad_request(f"`{one.field}` has more than {MAX_GRAMMAR_CHARS} characters", one.field)
    return one


def compiled(asked: Guide, grammars: grammar.Grammars) -> str:
    """Return the grammar, compiled once to see that it can be followed; raises ApiError. It may take a while."""
    try:
        spelled = asked.spell(asked.text)
        grammars.check(spelled)
    except grammar.GrammarError as error:
        raise bad_request(f"`{asked.field}`: {error}", asked.field) from error
    return spelled


def _formatted(request: GenerationRequest) -> Guide | None:
    wanted = request.response_format
    if wanted is None or (wanted.type != "json_schema" and wanted.json_schema is None):
        if wanted is None or wanted.type == "text":
            return None
        return Guide("response_format", grammar.ANY_OBJECT, grammar.of_json_schema)
    field = "response_format.json_schema"
    if wanted.type != "json_schema":
        raise bad_request(f"`{field}` needs the type `json_schema`", field)
    if wanted.json_schema is None:
        raise bad_request(f"type `json_schema` needs `{field}`", field)
    schema = wanted.json_schema.schema
    if ENGINES_OWN in (schema or {}):
        raise bad_request(f"`{ENGINES_OWN}` in a schema is not supported", f"{field}.schema")
    try:
        text = grammar.ANY_OBJECT if schema is None else grammar.json_text(schema)
    except grammar.GrammarError as error:
        raise bad_request(f"`{field}.schema`: {error}", f"{field}.schema") from error
    return Guide(f"{field}.schema", text, grammar.of_json_schema)
