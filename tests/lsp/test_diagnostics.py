"""Diagnostics while typing: those of `trc check`, of this version, with everything that belongs to them."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from lsprotocol import types as t

from tests.lsp.editor import spans
from tokenrouter.lsp.answers import make

pytestmark = pytest.mark.asyncio(loop_scope="module")
GOOD = """route 1

model small { use "s" }

policy p {
  start small
  at small { otherwise -> commit }
}
"""


async def test_a_sound_policy_has_an_empty_list(client):
    place = await client.editor.open(GOOD)

    assert client.diagnostics[place.uri] == ()


async def test_a_mistake_is_told_while_typing_and_goes_away_with_its_cause(client):
    place = await client.editor.open(GOOD)

    (told,) = await client.editor.type(place.uri, GOOD.replace("start small", "start smal"))

    assert told.code == "TR1001"
    assert told.severity == t.DiagnosticSeverity.Error
    assert told.source == "trc"
    assert "there is no model `smal`" in told.message and "did you mean `small`?" in told.message
    assert spans(GOOD.replace("start small", "start smal"), [told.range]) == ["smal"]
    assert await client.editor.type(place.uri, GOOD) == ()


async def test_what_the_passes_find_is_told_too(client):
    text = GOOD.replace("otherwise", "when entropy < 0 -> stop\n otherwise")

    place = await client.editor.open(text)

    assert [d.code for d in client.diagnostics[place.uri]] == ["TR2301"]


async def test_a_code_leads_to_its_page(client):
    place = await client.editor.open(GOOD.replace("start small", ""))

    (told,) = client.diagnostics[place.uri]

    page = Path(url2pathname(urlsplit(told.code_description.href).path))
    assert page.read_text(encoding="utf-8").startswith(f"# {told.code}:")


async def test_a_second_place_comes_along_as_a_related_one(client):
    text = GOOD.replace("policy p", 'model small { use "t" }\npolicy p')

    place = await client.editor.open(text)

    (told,) = client.diagnostics[place.uri]
    (related,) = told.related_information
    assert told.code == "TR1006"
    assert related.location.uri == place.uri
    assert related.location.range.start == t.Position(2, 6)
    assert "first" in related.message


async def test_what_nothing_uses_is_faded(client):
    place = await client.editor.open(GOOD.replace("policy p", "param x: nats = 1\npolicy p"))

    (told,) = client.diagnostics[place.uri]

    assert told.tags == (t.DiagnosticTag.Unnecessary,)
    assert told.severity == t.DiagnosticSeverity.Warning


async def test_of_a_burst_of_changes_only_the_last_is_told(client):
    place = await client.editor.open(GOOD)
    for i in range(20):
        text = GOOD.replace("start small", f"start model{i}")
        await client.editor.type(place.uri, text, wait=False)
    last = client.editor.versions[place.uri]

    told = await client.editor.told(place.uri)

    seen = {v: found for (uri, v), found in client.editor.published.items() if uri == place.uri}
    seen[last] = told
    assert list(seen) == sorted(seen)
    assert len(seen) < 20
    for version, found in seen.items():
        assert f"`model{version - 2}`" in found[0].message


async def test_a_check_overtaken_by_typing_is_never_shown(client):
    rules = "\n".join(
        f"when mean(entropy, {n}) > {n} and margin < 0.{n} -> stop" for n in range(100, 500)
    )
    slow = GOOD.replace("at small {", f"at small {{ {rules}")
    place = await client.editor.open(slow, wait=False)
    await asyncio.sleep(0.2)  # the check of that is under way, and takes longer

    await client.editor.type(place.uri, GOOD.replace("start small", ""), wait=False)

    told = await client.editor.told(place.uri)

    assert [d.code for d in told] == ["TR2003"]
    early = client.editor.published.get((place.uri, 1), [])
    assert not early  # what needs no passes may have been told


async def test_a_key_puts_off_the_check_of_the_key_before():
    server = make()
    for version in range(5):
        server.book.put("file:///typed.route", GOOD, version)
        server.later()
        await asyncio.sleep(0)  # so that a check which is put off can end

    waiting = [check for check in server.checks if not check.done()]
    assert waiting == [server.waiting["/typed.route"]]
    server.drop("/typed.route")


async def test_a_mistake_in_an_import_is_shown_where_it_is_imported(client):
    (client.editor.folder / "wrong.route").write_text("route 1\nparam x: nets = 1\n")
    text = GOOD.replace("model small", 'import "wrong.route"\nmodel small')

    place = await client.editor.open(text)

    told = client.diagnostics[place.uri][0]
    assert told.code == "TR1005"
    assert spans(text, [told.range]) == ['"wrong.route"']
    assert told.message.startswith("in `wrong.route`")
    assert told.related_information[0].location.uri.endswith("/wrong.route")
    assert told.related_information[0].location.range.start == t.Position(1, 9)


async def test_an_import_is_read_as_it_is_open_not_as_it_is_saved(client):
    (client.editor.folder / "shared.route").write_text('route 1\nmodel small { use "s" }\n')
    shared = await client.editor.open('route 1\nmodel small { use "s" }\n', "shared.route")
    text = GOOD.replace('model small { use "s" }', 'import "shared.route"')
    place = await client.editor.open(text)
    assert client.diagnostics[place.uri] == ()

    await client.editor.type(shared.uri, 'route 1\nmodel tiny { use "s" }\n', wait=False)

    told = await client.editor.told(place.uri, 1)
    assert [d.code for d in told] == ["TR1001"]


async def test_a_closed_file_keeps_no_diagnostics(client):
    place = await client.editor.open(GOOD.replace("start small", ""))
    assert client.diagnostics[place.uri]

    client.text_document_did_close(t.DidCloseTextDocumentParams(place.document))
    while not (told := [d for (uri, _), d in client.editor.published.items() if uri == place.uri]):
        await asyncio.sleep(0.005)

    assert told == [()]


async def test_a_python_policy_has_diagnostics_and_nothing_else(client):
    text = (
        "from tokenrouter.lang import at, commit, model, policy\n\n"
        'small = model("s")\n\n\n'
        "@policy(start=small)\nclass P:\n"
        "    @at(small)\n    def small_step(step):\n        print(step)\n        return commit()\n"
    )

    place = await client.editor.open(text, "policy.py")

    assert [d.code for d in client.diagnostics[place.uri]] == ["TR6005"]
    assert (
        await client.text_document_hover_async(t.HoverParams(place.document, t.Position(2, 1)))
        is None
    )
    tokens = t.SemanticTokensParams(place.document)
    assert (await client.text_document_semantic_tokens_full_async(tokens)).data == ()


async def test_python_that_is_no_policy_is_left_alone(client):
    place = await client.editor.open("import os\n\nprint(os.name)\n", "script.py")

    assert client.diagnostics[place.uri] == ()
