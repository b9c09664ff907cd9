"""docs/serving.md names every parameter, option and limit that the code has."""

import argparse
import re
from pathlib import Path

import pytest

from tokenrouter.commands import run, serve, top
from tokenrouter.runtime import transport
from tokenrouter.runtime.book import LONG, STEP
from tokenrouter.runtime.pace import LEAST
from tokenrouter.runtime.settings import Settings
from tokenrouter.server import guided, protocol, service
from tokenrouter.server.openapi import REFUSALS, document
from tokenrouter.server.protocol import NEUTRAL, NO_EFFECT, ChatRequest, CompletionRequest

TEXT = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")


def section(begin, end):
    return TEXT.split(begin, 1)[1].split(end, 1)[0]


def test_every_field_of_a_request_is_documented_where_it_belongs():
    supported = section("## Parameters", "**Without effect**")
    fields = {*ChatRequest.__struct_fields__, *CompletionRequest.__struct_fields__}

    missing = [f for f in fields - set(NEUTRAL) - set(NO_EFFECT) if f"`{f}" not in supported]

    assert missing == []
    assert set(re.findall(r"`(\w+)`", section("**Without effect**", "None of"))) == set(NO_EFFECT)
    unsupported = section("code `unsupported`:", "**Any other")
    assert set(re.findall(r"`(\w+)`", unsupported)) == set(NEUTRAL)


@pytest.mark.parametrize("verb", [serve, run, top], ids=["serve", "run", "top"])
def test_every_option_is_documented(verb):
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    part = TEXT.split(f"## `trc {verb.NAME}`", 1)[1]

    options = [o for action in parser._actions for o in action.option_strings if o[:2] == "--"]

    assert [o for o in options if o != "--help" and f"`{o}" not in part] == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (protocol.MAX_CHOICES, "at most 128"),
        (protocol.MAX_STOPS, "up to 64 of"),
        (protocol.MAX_STOP_CHARS, "up to 1,024 characters"),
        (protocol.MAX_STOP_IDS, "up to 256 ids"),
        (protocol.MAX_BIASES, "up to 1,024 ids"),
        (guided.MAX_GRAMMAR_CHARS, "at most 65,536 characters"),
        (protocol.MAX_TOP_LOGPROBS, "text: 0 to 20"),
        (protocol.MAX_METADATA, "up to 32 texts"),
        (protocol.MAX_METADATA_CHARS, "bools of up to 1,024 characters"),
        (service.BODY_LIMIT_BYTES >> 20, "a body above 4 MiB"),
        (protocol.MAX_PRIORITY, "-1,000 to 1,000"),
        (protocol.MAX_TIMEOUT_S, "to 86,400 s"),
        (STEP, "plus 64 times its `priority`"),
        (LONG, "prompts of more than 512 tokens"),
        (Settings().max_batch_tokens, "A batch has at most 512 tokens"),
        (int(LEAST), "at least 16 tokens"),
        (transport.MOST_BYTES >> 20, "has at most 64 MiB"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_every_limit_is_the_one_that_is_documented(value, said):
    assert said in re.sub(r"\s+", " ", TEXT) and f"{value:,}" in said


def rows(begin, end):
    """Return the cells of a table, by the names in its first column."""
    lines = [line for line in section(begin, end).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: rest for first, *rest in cells for name in re.findall(r"`([\w.]+)`", first)}


def bounds(schema):
    """Return the least and the most of a number."""
    kinds = schema.get("anyOf", [schema])
    found = {k: kind[k] for kind in kinds for k in kind if "imum" in k.lower()}
    low = found.get("minimum", found.get("exclusiveMinimum"))
    return low, found.get("maximum"), "exclusiveMinimum" in found


PARAMETERS = rows("## Parameters", "**Without effect**")
PROPERTIES = {
    **document()["components"]["schemas"]["ChatRequest"]["properties"],
    **document()["components"]["schemas"]["CompletionRequest"]["properties"],
}


@pytest.mark.parametrize("field", [f for f, schema in PROPERTIES.items() if any(bounds(schema))])
def test_every_range_is_the_one_that_is_documented(field):
    values = PARAMETERS[field][0]
    low, high, beyond = bounds(PROPERTIES[field])

    if values.startswith("as "):
        return
    said = [float(n.replace(",", "")) for n in re.findall(r"-?[\d,]*\d", values)]
    assert low in said and (high is None or high in said), (values, low, high)
    assert beyond == ("above" in values)
    assert (high is None) == ("and up" in values)


@pytest.mark.parametrize(
    "field", [f for f, s in PROPERTIES.items() if s.get("default") is not None]
)
def test_every_default_is_the_one_that_is_documented(field):
    said = PARAMETERS[field][1]

    default = PROPERTIES[field]["default"]
    if field == "logprobs":
        default = "none"
    spelled = str(default).lower() if isinstance(default, (bool, str)) else f"{default:g}"
    assert said.startswith(spelled), (said, default)


def test_every_status_is_documented():
    lines = section("## Limits and refusals", "A message is one line").splitlines()
    told = {line.split("|")[1].split("`")[0].strip() for line in lines if line.startswith("| ")}

    assert told - {"status"} == set(REFUSALS)


def test_every_test_that_the_list_of_broken_requests_names_is_there():
    root = Path(__file__).parents[2]
    text = (root / "docs/testing.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", text)

    assert len(named) >= 15
    for file, test in named:
        assert f"def {test}(" in (root / "tests/server" / file).read_text(encoding="utf-8"), test
