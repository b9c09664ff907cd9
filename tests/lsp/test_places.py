"""Positions in the three encodings, on any text; and a server that speaks each of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types as t
from pytest_lsp import ClientServerConfig, client_capabilities

from tests.lsp.conftest import SERVER
from tests.lsp.editor import Editor
from tokenrouter.dsl.source import Source
from tokenrouter.lsp.place import Places

TEXTS = st.text(alphabet="aé→🙂\n\r\ufeff\u2028\x0c", max_size=30)
ENCODINGS = ("utf-8", "utf-16", "utf-32")
SIZES = {"utf-8": 1, "utf-16": 2, "utf-32": 4}


@given(TEXTS, st.sampled_from(ENCODINGS), st.data())
def test_a_place_there_and_back_is_the_place(text, encoding, data):
    places = Places(Source.of("p", text), encoding)
    offset = data.draw(st.integers(0, len(text)))
    if text[offset - 1 : offset + 1] == "\r\n":
        return  # an editor has no place inside a line's end

    position = places.position(offset)

    line = text[places.source.starts[position.line] : offset]
    codec = encoding if encoding == "utf-8" else f"{encoding}-le"
    assert position.character == len(line.encode(codec)) // SIZES[encoding]
    assert places.offset(position) == offset


@given(TEXTS, st.sampled_from(ENCODINGS), st.integers(0, 40), st.integers(0, 40))
def test_a_place_beyond_is_the_end_of_its_line(text, encoding, line, character):
    offset = Places(Source.of("p", text), encoding).offset(t.Position(line, character))

    assert 0 <= offset <= len(text)
    if character == 40 and line < len(Source.of("p", text).starts):
        assert offset == len(text) or text[offset] in "\r\n"


@pytest.mark.asyncio
@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 23), ("utf-16", 19), ("utf-32", 18)])
async def test_the_server_speaks_the_encoding_of_the_editor(encoding, column, tmp_path):
    client = await ClientServerConfig(server_command=SERVER).start()
    capabilities = client_capabilities("visual-studio-code")
    capabilities.general.position_encodings = [encoding]
    told = await client.initialize_session(t.InitializeParams(capabilities=capabilities))
    editor = Editor(client, tmp_path)

    place = await editor.open('route 1\ntest "→🙂 xxx" for nobody {}\n')

    assert told.capabilities.position_encoding == encoding
    (diagnostic,) = client.diagnostics[place.uri]
    assert diagnostic.range.start == t.Position(1, column)
    await client.shutdown_session()
    await client.stop()
