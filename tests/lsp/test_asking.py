"""Hover, completion, signature help, definition, references, rename, symbols."""

import re

import pytest
from lsprotocol import types as t

from tests.lsp.editor import edited, spans
from tokenrouter.signals import CLASSES, SIGNALS, WINDOWS

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = """route 1

model small { use "org/small"  cost 1 }
model large { use "org/large"  cost 9.5 }
head diverge { file "d.safetensors"  reads small.{hidden} }
param tau: nats = 0.5 in [0, 4]
var n: count = 0
signal shaky = mean(entropy, 8) > tau and margin < 0.1

policy p {
  start small
  at small {
    when shaky or diverge > 0.5 -> retry large set n = n + 1
    when entropy < 0 -> stop
    otherwise -> commit
  }
  at large {
    when entropy <= tau -> commit then small
    otherwise -> commit
  }
  guarantee count(large) <= 1000
}

test "unsure" for p {
  at small given entropy = 3, margin = 0.01, diverge = 0 -> retry large
}
"""


def at(snippet):
    """Return the text with the cursor put where a snippet has its `|`."""
    plain = snippet.replace("|", "")
    assert TEXT.count(plain) == 1, plain
    return TEXT.replace(plain, snippet)


async def hover(client, snippet):
    place = await client.editor.open(at(snippet))
    found = await client.text_document_hover_async(t.HoverParams(place.document, place.position))
    return None if found is None else found.contents.value


@pytest.mark.parametrize(
    ("snippet", "parts"),
    [
        ("when entr|opy <= tau", ["Shannon entropy of p", "unit: nats", "range: [0, ∞)"]),
        ("mea|n(entropy, 8)", ["mean(signal, n)", "last n steps"]),
        ("retry lar|ge set", ["org/large", "cost 9.5"]),
        ("entropy <= ta|u", ["param tau: nats = 0.5", "from 0 to 4"]),
        ("when shak|y", ["signal shaky =", "a condition"]),
        ("or diver|ge", ["kind `mlp`", "at `small`", "a probability"]),
        ("set n = |n + 1", ["a variable of the request", "a count"]),
        ("for |p {\n  at", ["rules at `small`, `large`", "guarantee count(large) <= 1000"]),
        ("c|ost 9.5", ["what one step costs"]),
        ("guarant|ee count", ["proves or refuses"]),
        ("counts(large)".replace("s(", "|("), ["committed tokens that a model wrote"]),
    ],
)
async def test_hover_tells_what_stands_there(client, snippet, parts):
    text = await hover(client, snippet)

    assert [part for part in parts if part not in text] == []


async def test_hover_tells_of_a_rule_whether_it_can_fire(client):
    whole = TEXT.replace("guarantee count(large) <= 1000\n", "")
    place = await client.editor.open(whole)
    lines = whole.split("\n")

    async def told(words):
        line = next(i for i, text in enumerate(lines) if words in text)
        position = t.Position(line, lines[line].index("when") + 1)
        found = await client.text_document_hover_async(t.HoverParams(place.document, position))
        return found.contents.value

    assert "this rule never fires" in await told("entropy < 0")
    assert "this rule can fire" in await told("when shaky or")


async def test_hover_tells_how_often_a_rule_is_expected_to_fire(client):
    place = await client.editor.open(
        'route 1\nmodel a { use "a" }\nmodel b { use "b" }\npolicy p {\n  start { when prompt_tokens > 99 -> b otherwise -> a }\n'
        "  at any {\n    when position <= 3 -> commit\n    otherwise -> commit\n  }\n}\n"
    )

    async def told(line, column):
        position = t.Position(line, column)
        found = await client.text_document_hover_async(t.HoverParams(place.document, position))
        return [text for text in found.contents.value.split("\n\n") if text.startswith("expected")]

    assert re.fullmatch(
        r"expected on \d+% of the requests, from assumed probabilities", (await told(4, 11))[0]
    )
    at_a, at_b = await told(6, 5)
    assert re.fullmatch(
        r"expected on \d+% of the decisions at `a`, from assumed probabilities", at_a
    )
    assert at_b == at_a.replace("`a`", "`b`")
    rest = (await told(7, 5))[0]
    assert percent(at_a) + percent(rest) == 100


def percent(text):
    return int(re.search(r"(\d+)%", text)[1])


async def test_hover_tells_how_large_a_model_is_that_is_here_and_why_another_is_not_known(client):
    text = 'route 1\nmodel |here { use "demo:small" }\nmodel gone { use "no/where" }\npolicy p { start here at here { otherwise -> commit } }\n'
    place = await client.editor.open(text)

    here = await client.text_document_hover_async(t.HoverParams(place.document, place.position))
    gone = await client.text_document_hover_async(t.HoverParams(place.document, t.Position(2, 7)))

    for part in (
        "parameters",
        "MiB as float32",
        "7 layers",
        "a vocabulary of 49,152 ids",
        "KV each",
    ):
        assert part in here.contents.value
    assert "size unknown: " in gone.contents.value


async def test_hover_over_nothing_says_nothing(client):
    assert await hover(client, "policy p {\n|  start") is None


async def labels(client, text):
    place = await client.editor.open(text)
    found = await client.text_document_completion_async(
        t.CompletionParams(place.document, place.position)
    )
    return {item.label for item in found}


@pytest.mark.parametrize(
    ("snippet", "offered", "not_offered"),
    [
        ("|policy p {", {"model", "param", "policy", "test", "import"}, {"when", "small"}),
        ("  |start small", {"at", "enforce", "objective"}, {"model", "tau"}),
        ("at |large {", {"small", "large", "any"}, {"tau", "entropy"}),
        ("    |when shaky", {"when", "otherwise"}, {"at", "model"}),
        ("when |shaky or", {"shaky", "tau", "n", "diverge", *SIGNALS, *WINDOWS}, {"small", "fuse"}),
        ("0.5 -> |retry", {"retry", "commit", "borrow", "stop"}, {"tau", "when", "small"}),
        ("retry |large set", {"small", "large"}, {"tau", "entropy"}),
        ("retry large set |n", {"n"}, {"tau", "small"}),
        ("commit |then small", {"then", "set", "when"}, {"small"}),
        ("commit then |small", {"small", "large", "mix", "borrow"}, {"tau"}),
        ("count(|large)", {"small", "large"}, {"tau"}),
        ("param tau: |nats", {"nats", "share", "bool"}, {"tokens", "small"}),
        ("margin < 0.1\n|\npolicy", {"nats", "and", "or"}, {"small", "entropy"}),
        ("reads small.{|hidden", {"hidden", "logits", "token"}, {"small"}),
        ("  |cost 9.5", {"use", "cost", "dtype"}, {"file", "at"}),
        ("for |p {\n  at", {"p"}, {"small"}),
    ],
)
async def test_completion_offers_what_fits_and_nothing_else(client, snippet, offered, not_offered):
    found = await labels(client, at(snippet))

    assert offered - found == set()
    assert not_offered & found == set()


@pytest.mark.parametrize(
    ("before", "offered"),
    [
        ('route 1\nmodel small { use "s" dtype |', {"float32", "bfloat16"}),
        ("route 1\npolicy p { objective |", {"throughput", "latency"}),
        ('route 1\nmodel a { use "s" }\npolicy p { start mix { |', {"a"}),
        ("route 1\npolicy p { at a { when class is |", set(CLASSES)),
        ('route 1\nmodel a { use "s" }\npolicy p { at a { when entropy > |', {"entropy"}),
        ("|", {"route", "model"}),
        ("route 1\nhead h { re|", {"reads", "file"}),
        ('route 1\nmodel a { use "s" }\npolicy p { start a at a { when ) ) -> retry |', {"a"}),
    ],
)
async def test_completion_goes_on_from_what_is_half_written(client, before, offered):
    found = await labels(client, before)

    assert offered - found == set()


@pytest.mark.parametrize(
    "before",
    [
        'route 1\nmodel small { use "s" dtype |',
        'route 1\nmodel small { use "s" quantize |',
        "route 1\nhead h { kind |",
        'route 1\nmodel a { use "s" }\npolicy p { at a { when share(|',
        "route 1\npolicy p { at a { when class is |",
    ],
)
async def test_completion_offers_no_values_where_only_a_name_means_anything(client, before):
    assert await labels(client, before) & {"true", "false"} == set()


async def test_completion_offers_files_in_strings_that_name_some(client):
    (client.editor.folder / "heads").mkdir()
    (client.editor.folder / "heads" / "one.safetensors").write_bytes(b"")
    (client.editor.folder / "heads" / "notes.txt").write_text("")
    (client.editor.folder / "common.route").write_text("route 1\n")

    assert await labels(client, 'route 1\nhead h { file "heads/|') == {"one.safetensors"}
    assert "common.route" in await labels(client, 'route 1\nimport "|')
    assert await labels(client, 'route 1\ntest "|') == set()


async def test_completion_is_silent_in_comments(client):
    assert await labels(client, "route 1\n# mod|") == set()


async def test_signature_help_follows_the_argument(client):
    async def help_at(snippet):
        place = await client.editor.open(at(snippet))
        return await client.text_document_signature_help_async(
            t.SignatureHelpParams(place.document, place.position)
        )

    first, second = await help_at("mean(|entropy, 8)"), await help_at("mean(entropy, |8)")

    assert first.signatures[0].label == "mean(signal, n)"
    assert (first.active_parameter, second.active_parameter) == (0, 1)
    assert await help_at("when |shaky") is None


async def definition(client, text):
    place = await client.editor.open(text)
    return place, await client.text_document_definition_async(
        t.DefinitionParams(place.document, place.position)
    )


@pytest.mark.parametrize(
    ("snippet", "line"),
    [
        ("retry lar|ge set", "model large"),
        ("entropy <= ta|u", "param tau"),
        ("when sha|ky", "signal shaky"),
        ("reads sma|ll", "model small"),
        ("for |p {\n  at", "policy p"),
        ("diver|ge = 0", "head diverge"),
    ],
)
async def test_a_name_leads_to_its_declaration(client, snippet, line):
    place, found = await definition(client, at(snippet))

    assert found.uri == place.uri
    assert TEXT.split("\n")[found.range.start.line].startswith(line)


async def test_a_built_in_name_leads_nowhere(client):
    _, found = await definition(client, at("when entr|opy <= tau"))

    assert found is None


COMMON = (
    'route 1\nmodel small { use "s" }\nmodel large { use "l" }\nparam dial: nats = 1 in [0, 4]\n'
)
USER = """route 1
import "lib.route"
policy q {
  start small
  at any { when entropy > dial -> retry large otherwise -> commit }
}
"""


async def test_names_lead_through_imports_and_back(client):
    lib = await client.editor.open(COMMON.replace("param di", "param |di"), "lib.route")
    place, found = await definition(client, USER.replace("> dial", "> di|al"))
    _, file = await definition(client, USER.replace('"lib', '"|lib'))
    everywhere = await client.text_document_references_async(
        t.ReferenceParams(t.ReferenceContext(True), lib.document, lib.position)
    )
    uses = await client.text_document_references_async(
        t.ReferenceParams(t.ReferenceContext(False), lib.document, lib.position)
    )

    assert (found.uri, found.range.start) == (lib.uri, t.Position(3, 6))
    assert file is None  # nothing of that name is on the disk
    assert {lib.uri, place.uri} <= {location.uri for location in everywhere}
    assert lib.uri not in {location.uri for location in uses}


async def test_an_import_leads_to_its_file(client):
    (client.editor.folder / "there.route").write_text(COMMON)

    _, found = await definition(client, USER.replace('"lib.route"', '"the|re.route"'))

    assert found.uri == (client.editor.folder / "there.route").as_uri()


async def rename(client, place, name):
    return await client.text_document_rename_async(
        t.RenameParams(new_name=name, text_document=place.document, position=place.position)
    )


async def test_a_name_changes_in_every_file_and_nowhere_else(client):
    (client.editor.folder / "base.route").write_text(COMMON)
    user = USER.replace("lib", "base")
    (client.editor.folder / "other.route").write_text(user.replace("policy q", "policy other"))
    (client.editor.folder / "own.route").write_text(
        COMMON + "policy o { start small at any { otherwise -> commit } }"
    )
    place = await client.editor.open(user.replace("> dial", "> di|al"), "user.route")

    edit = await rename(client, place, "knob")

    changes = {uri.rsplit("/", 1)[1]: edits for uri, edits in edit.changes.items()}
    assert set(changes) == {"base.route", "user.route", "other.route"}
    assert edited(user, changes["user.route"]) == user.replace("dial", "knob")
    assert edited(COMMON, changes["base.route"]) == COMMON.replace("dial", "knob")


async def test_every_use_is_renamed_and_the_file_means_the_same(client):
    place = await client.editor.open(at("model sma|ll { use"))

    edit = await rename(client, place, "tiny")

    renamed = edited(TEXT, edit.changes[place.uri])
    assert renamed == TEXT.replace("small", "tiny").replace("org/tiny", "org/small")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("two words", "no name"),
        ("when", "means something already"),
        ("entropy", "means something already"),
        ("tau", "declared already"),
    ],
)
async def test_a_name_that_cannot_be_is_refused_with_a_reason(client, name, why):
    place = await client.editor.open(at("model sma|ll { use"))
    client.messages.clear()

    assert await rename(client, place, name) is None

    assert why in client.messages[-1].message


async def test_only_declared_names_can_be_renamed(client):
    async def prepare(snippet):
        place = await client.editor.open(at(snippet))
        return await client.text_document_prepare_rename_async(
            t.PrepareRenameParams(place.document, place.position)
        )

    assert (await prepare("retry lar|ge set")).placeholder == "large"
    assert await prepare("when entr|opy <= tau") is None


async def test_uses_in_the_file_are_marked(client):
    place = await client.editor.open(at("param ta|u"))

    found = await client.text_document_document_highlight_async(
        t.DocumentHighlightParams(place.document, place.position)
    )

    assert spans(TEXT, [h.range for h in found]) == ["tau", "tau", "tau"]
    assert [h.kind for h in found].count(t.DocumentHighlightKind.Write) == 1


async def test_symbols_show_the_shape_of_the_file(client):
    place = await client.editor.open(TEXT)

    found = await client.text_document_document_symbol_async(t.DocumentSymbolParams(place.document))

    assert [s.name for s in found] == [
        "small", "large", "diverge", "tau", "n", "shaky", "p", "unsure",
    ]  # fmt: skip
    policy = found[6]
    assert [s.name for s in policy.children] == [
        "start small", "at small", "at large", "guarantee count(large) <= 1000",
    ]  # fmt: skip
    assert [s.name for s in policy.children[2].children] == [
        "when entropy <= tau -> commit then small", "otherwise -> commit",
    ]  # fmt: skip


async def test_the_workspace_is_searched_by_name(client):
    (client.editor.folder / "far.route").write_text('route 1\nmodel far_away { use "s" }\n')

    found = await client.workspace_symbol_async(t.WorkspaceSymbolParams("far_"))

    assert [(s.name, s.container_name) for s in found] == [("far_away", "far.route")]
