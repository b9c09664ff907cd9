"""Semantic tokens, folds, layout, fixes and rewrites, hints, lenses and links."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from lsprotocol import types as t

from tests.lsp.editor import edited
from tokenrouter.compiler.analyse import analysed
from tokenrouter.compiler.python_text import python_text
from tokenrouter.dsl.layout import layout
from tokenrouter.dsl.load import parse_text
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.source import Source

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GUARDED = (ROOT / "examples/guarded.route").read_text(encoding="utf-8")
MESSY = """route 1

# One of
# two lines.
model small {use "s"}

policy p {
    start small
  at small {
      when entropy>1 nats->stop
    otherwise -> commit
  }
}
"""


def laid(text):
    return layout(parse(Source.of("p.route", text)))


def unpacked(text, client, data):
    """Return tokens with their texts, kinds and modifiers."""
    legend = client.told.capabilities.semantic_tokens_provider.legend
    lines, line, column, found = text.split("\n"), 0, 0, []
    for i in range(0, len(data), 5):
        down, right, length, kind, bits = data[i : i + 5]
        line, column = line + down, right if down else column + right
        names = [m for n, m in enumerate(legend.token_modifiers) if bits >> n & 1]
        found.append((lines[line][column : column + length], legend.token_types[kind], *names))
    return found


async def test_every_token_has_its_kind(client):
    place = await client.editor.open(GUARDED)

    full = await client.text_document_semantic_tokens_full_async(
        t.SemanticTokensParams(place.document)
    )

    found = unpacked(GUARDED, client, full.data)
    assert {
        ("route", "keyword"),
        ("1", "number"),
        ("small", "class", "declaration"),
        ("small", "class"),
        ("use", "property"),
        ('"demo:small"', "string"),
        ("tau", "parameter", "declaration", "readonly"),
        ("tau", "parameter", "readonly"),
        ("nats", "type"),
        ("guarded", "namespace", "declaration"),
        ("entropy", "function", "defaultLibrary"),
        ("->", "operator"),
        ("%", "type"),
    } <= set(found)
    assert "".join(text for text, *_ in found if text.startswith("#")).count("#") == 2


async def test_tokens_of_some_lines_are_those_of_the_file(client):
    place = await client.editor.open(GUARDED)
    lines = t.Range(t.Position(5, 0), t.Position(8, 0))

    full = await client.text_document_semantic_tokens_full_async(
        t.SemanticTokensParams(place.document)
    )
    some = await client.text_document_semantic_tokens_range_async(
        t.SemanticTokensRangeParams(place.document, lines)
    )

    part = unpacked(GUARDED, client, some.data)
    whole = unpacked(GUARDED, client, full.data)
    start = whole.index(part[0])
    assert part == whole[start : start + len(part)]
    assert part[0] == ("model", "keyword") and part[-1][0] == "11.0"


async def test_blocks_and_comments_fold(client):
    place = await client.editor.open(MESSY)

    found = await client.text_document_folding_range_async(t.FoldingRangeParams(place.document))

    assert [(f.start_line, f.end_line) for f in found] == [(2, 3), (6, 11), (8, 10)]
    assert found[0].kind == t.FoldingRangeKind.Comment


FOUR = t.FormattingOptions(4, True)


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
async def test_formatting_is_that_of_trc_fmt(client, end):
    text = MESSY.rstrip("\n") + end
    place = await client.editor.open(text)

    edits = await client.text_document_formatting_async(
        t.DocumentFormattingParams(place.document, FOUR)
    )

    assert edited(text, edits) == laid(text)
    assert not any(e.range.start.line == 0 for e in edits)  # what is right stays untouched


async def test_formatting_changes_nothing_the_second_time(client):
    place = await client.editor.open(laid(MESSY))

    assert (
        await client.text_document_formatting_async(
            t.DocumentFormattingParams(place.document, FOUR)
        )
        == ()
    )


async def test_lines_outside_a_range_keep_their_layout(client):
    place = await client.editor.open(MESSY)
    within = t.Range(t.Position(9, 0), t.Position(9, 5))

    edits = await client.text_document_range_formatting_async(
        t.DocumentRangeFormattingParams(place.document, within, FOUR)
    )

    old, new = MESSY.split("\n"), edited(MESSY, edits).split("\n")
    assert [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b] in ([9], [9, 10])
    assert new[9] == "    when entropy > 1 nats -> stop"


async def test_asking_for_one_line_of_a_long_block_changes_that_line(client):
    rules = [f"when entropy>{at} nats  -> stop" for at in range(20)]
    body = "\n".join([*rules, "otherwise -> commit"])
    text = f'route 1\nmodel small {{ use "s" }}\npolicy p {{\nstart small\nat small {{\n{body}\n}}\n}}\n'
    place = await client.editor.open(text)
    for line in (4, 5, 12, 24):
        within = t.Range(t.Position(line, 0), t.Position(line, 3))

        edits = await client.text_document_range_formatting_async(
            t.DocumentRangeFormattingParams(place.document, within, FOUR)
        )

        assert [(e.range.start.line, e.range.end.line) for e in edits] == [(line, line + 1)]
        assert edited(text, edits).split("\n")[line] == laid(text).split("\n")[line]


async def test_a_text_with_syntax_errors_is_not_laid_out(client):
    place = await client.editor.open(MESSY.replace("stop", "} {"))

    assert (
        await client.text_document_formatting_async(
            t.DocumentFormattingParams(place.document, FOUR)
        )
        == ()
    )


async def actions(client, text, only=None):
    place = await client.editor.open(text)
    found = await client.text_document_code_action_async(
        t.CodeActionParams(place.document, place.range, t.CodeActionContext([], only))
    )
    return place, {action.title: action for action in found}


SMALL = 'route 1\n\nmodel small { use "s" }\nmodel large { use "l" }\n\n'


@pytest.mark.parametrize(
    ("policy", "title", "then"),
    [
        (
            "policy p { start small at |any { when entropy > 1 -> stop } }",
            "add `otherwise`",
            "policy p { start small at any { when entropy > 1 -> stop otherwise -> commit } }",
        ),
        (
            "policy p { start small at any { when entropy > 1 |&& margin < 1 -> stop otherwise -> commit } }",
            "write `and`",
            "policy p { start small at any { when entropy > 1 and margin < 1 -> stop otherwise -> commit } }",
        ),
        (
            "policy p { start |smal at any { otherwise -> commit } }",
            "write `small`",
            "policy p { start small at any { otherwise -> commit } }",
        ),
        (
            "policy p { start small at any { when entropy > 1 |stop otherwise -> commit } }",
            "insert `->`",
            "policy p { start small at any { when entropy > 1 -> stop otherwise -> commit } }",
        ),
        (
            "policy p { start small at any { otherwise -> commit then large } |guarantee share(large) <= 1% }",
            "enforce the bound",
            "policy p { start small at any { otherwise -> commit then large } enforce share(large) <= 1% }",
        ),
        (
            "policy p { start small at any { otherwise -> commit } |guarantee share(large) <= 40% }",
            "turn `guarantee` into `enforce`",
            "policy p { start small at any { otherwise -> commit } enforce share(large) <= 40% }",
        ),
    ],
)
async def test_a_fix_is_offered_and_mends(client, policy, title, then):
    _, found = await actions(client, SMALL + policy)

    (edits,) = found[title].edit.changes.values()

    assert edited((SMALL + policy).replace("|", "", 1), edits) == SMALL + then
    assert title.startswith("turn") or found[title].diagnostics


async def test_a_fix_is_offered_only_where_its_diagnostic_is(client):
    text = "|" + SMALL + "policy p { start small at any { when entropy > 1 -> stop } }"

    _, found = await actions(client, text)

    assert "add `otherwise`" not in found


async def test_all_safe_fixes_come_at_once(client):
    text = (
        SMALL
        + "policy p { start small at any { when entropy > 1 && margin < 1 || rank > 2 -> stop otherwise -> commit } }"
    )
    kinds = [t.CodeActionKind.SourceFixAll]

    _, found = await actions(client, "|" + text, kinds)

    (action,) = found.values()
    (edits,) = action.edit.changes.values()
    fixed = edited(text, edits)
    assert fixed == text.replace("&&", "and").replace("||", "or")
    assert action.title == "apply all 2 safe fixes"


async def test_a_policy_is_written_as_python_that_means_the_same(client):
    _, found = await actions(client, "|" + GUARDED)

    create, change = found["write `guarded` as Python"].edit.document_changes

    assert create.kind == "create" and create.uri.endswith(".py")
    assert change.text_document.uri == create.uri
    text = change.edits[0].new_text
    assert parse_text(text, "guarded.py").policies == parse_text(GUARDED).policies


@pytest.mark.parametrize("name", ["guarded", "query_level", "r2r_momentum"])
async def test_a_python_policy_is_written_as_route_that_means_the_same(client, name):
    route = (EXAMPLES / f"{name}.route").read_text()
    python = python_text(parse_text(route).only())
    place = await client.editor.open(python, f"{name}_in_python.py")

    found = await client.text_document_code_action_async(
        t.CodeActionParams(
            place.document, t.Range(t.Position(0, 0), t.Position(0, 0)), t.CodeActionContext([])
        )
    )

    (action,) = [a for a in found if a.title == f"write `{name}` as .route"]
    create, change = action.edit.document_changes
    assert create.kind == "create" and create.uri.endswith(f"{name}_in_python.route")
    assert str(analysed(parse_text(change.edits[0].new_text))[0]) == str(
        analysed(parse_text(route))[0]
    )


async def test_a_policy_with_mistakes_is_not_written_as_python(client):
    _, found = await actions(client, "|" + GUARDED.replace("start small", "start smal"))

    assert [title for title in found if "Python" in title] == []


async def hints(client, text):
    place = await client.editor.open(text)
    everywhere = t.Range(t.Position(0, 0), t.Position(999, 0))
    found = await client.text_document_inlay_hint_async(
        t.InlayHintParams(place.document, everywhere)
    )
    return [(h.position.line, h.position.character, h.label) for h in found]


async def test_bare_numbers_and_signals_are_told_their_units(client):
    text = SMALL + (
        "signal s = entropy + 1\n"
        "policy p { start small at any {\n"
        "  when s > 2 or entropy > 3 nats or margin < 0.5 -> stop\n"
        "  otherwise -> commit\n} }\n"
    )

    assert await hints(client, text) == [(5, 8, ": nats"), (5, 22, " nats"), (7, 12, " nats")]


async def test_settings_of_the_editor_are_shown_and_used(client):
    text = SMALL + (
        "param dial: nats = 1 in [0, 4]\n"
        "policy p { start small at any { when entropy > dial -> stop otherwise -> commit } }\n"
    )

    assert await hints(client, text) == [(5, 30, " set to 2.5")]


async def lenses(client, text):
    place = await client.editor.open(text)
    found = await client.text_document_code_lens_async(t.CodeLensParams(place.document))
    return {(lens.command.title, lens.range.start.line): lens.command for lens in found}


async def run(client, command):
    client.messages.clear()
    text = await client.workspace_execute_command_async(
        t.ExecuteCommandParams(command.command, command.arguments)
    )
    assert client.messages[-1].message == text
    return text, client.messages[-1].type


async def test_a_lens_runs_a_test(client):
    found = await lenses(client, GUARDED)
    assert [title for title, _ in found] == ["explain", "run test", "run test"]
    command = next(c for (title, _), c in found.items() if title == "run test")

    text, kind = await run(client, command)

    assert text.split("\n")[0] == 'test "an unsure token goes to large": passed'
    assert text.count("ok: ") == 2
    assert kind == t.MessageType.Info


async def test_a_lens_tells_why_a_test_fails(client):
    found = await lenses(
        client, GUARDED.replace("entropy = 3.0 -> retry", "entropy = 0.5 -> retry")
    )
    command = next(c for (title, _), c in found.items() if title == "run test")

    text, kind = await run(client, command)

    assert "1 failed" in text and "expected retry large, got commit" in text
    assert kind == t.MessageType.Error


async def test_a_lens_explains_a_policy(client):
    found = await lenses(client, GUARDED)
    command = next(c for (title, _), c in found.items() if title == "explain")

    text, _ = await run(client, command)

    assert "share(large) <= 0.4: enforced" in text
    assert "[entropy <= tau] keep -> small" in text


async def test_strings_that_name_files_are_links(client):
    (client.editor.folder / "linked.route").write_text("route 1\n")
    (client.editor.folder / "h.safetensors").write_bytes(b"")
    text = 'route 1\nimport "linked.route"\nimport "gone.route"\nhead h { file "h.safetensors" }\n'
    place = await client.editor.open(text)

    found = await client.text_document_document_link_async(t.DocumentLinkParams(place.document))

    assert [link.target.rsplit("/", 1)[1] for link in found] == ["linked.route", "h.safetensors"]
    assert found[0].range == t.Range(t.Position(1, 7), t.Position(1, 21))


async def test_a_code_in_a_comment_leads_to_its_page(client):
    text = 'route 1\nmodel m { use "m" }  # λ TR2303 is meant; TR9999 is none, nor XTR2303\n'
    place = await client.editor.open(text)

    found = await client.text_document_document_link_async(t.DocumentLinkParams(place.document))

    (link,) = found
    assert link.range == t.Range(t.Position(1, 25), t.Position(1, 31))
    assert Path(unquote(urlsplit(link.target).path)).read_text().startswith("# TR2303")
