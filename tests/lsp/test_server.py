"""The process: what it needs, what it can do, how it ends; and one source for its words."""

import subprocess
import sys

import pytest
from lsprotocol import types as t

from tests.lsp.conftest import SERVER
from tokenrouter.dsl.declare import HEAD_PROPERTIES, MODEL_PROPERTIES
from tokenrouter.dsl.table import table
from tokenrouter.lsp.words import PROPERTIES, WINDOW_MEANINGS, WORDS
from tokenrouter.signals import WINDOWS


def test_every_word_of_the_grammar_is_explained_and_no_other():
    assert set(WORDS) == set(table().words)
    assert set(WINDOW_MEANINGS) == set(WINDOWS)
    assert set(PROPERTIES) == {*MODEL_PROPERTIES, *HEAD_PROPERTIES}


def test_without_the_extra_one_line_says_what_to_install():
    code = (
        "import sys; sys.modules['pygls'] = None;"
        "from tokenrouter import cli; sys.exit(cli.main(['lsp']))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr == (
        "trc lsp: the language server needs `pygls`: pip install 'tokenrouter[lsp]'\n"
    )


def test_a_check_loads_nothing_of_the_language_server(tmp_path):
    (tmp_path / "p.route").write_text("route 1\n")
    code = (
        "import sys; from tokenrouter import cli; cli.main(['check', sys.argv[1]]);"
        "print([m for m in ('pygls', 'lsprotocol', 'torch') if m in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "p.route")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == "[]"


def test_the_server_loads_nothing_that_takes_long():
    code = (
        "import sys; import tokenrouter.lsp.answers;"
        "print([m for m in ('torch', 'transformers', 'scipy', 'numpy') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_process_ends_when_the_editor_is_gone():
    with subprocess.Popen(
        SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        server.stdin.close()

        server.wait(timeout=60)


@pytest.mark.asyncio(loop_scope="module")
async def test_everything_that_is_answered_is_announced(client):
    can = client.told.capabilities

    assert client.told.server_info.name == "trc"
    assert can.text_document_sync.change == t.TextDocumentSyncKind.Full
    for name in (
        "hover", "completion", "signature_help", "definition", "references", "rename", "document_symbol", "inlay_hint",
        "workspace_symbol", "semantic_tokens", "folding_range", "document_formatting", "document_range_formatting",
        "code_action", "code_lens", "document_link", "document_highlight", "execute_command",
    ):  # fmt: skip
        assert getattr(can, f"{name}_provider"), name
