"""The process: what it needs, what it can do, how it ends; and one source for its words."""

import json
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


class Raw:
    """A server that is sent what no well-made editor sends."""

    def __init__(self, server):
        self.server, self.last = server, 0

    def send(self, method, params, **fields):
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **fields})
        self.server.stdin.write(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        self.server.stdin.flush()

    def ask(self, method, params):
        self.last += 1
        self.send(method, params, id=self.last)
        while True:
            length = 0
            while (line := self.server.stdout.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answer = json.loads(self.server.stdout.read(length))
            if answer.get("id") == self.last and "method" not in answer:
                return answer


@pytest.fixture
def raw():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(SERVER, **pipes) as server:
        client = Raw(server)
        client.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        yield client
        server.kill()


PLACE = {
    "textDocument": {"uri": "file:///nowhere/p.route"},
    "position": {"line": 0, "character": 0},
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "params",
    [{}, None, [], {**PLACE, "position": {"line": -1, "character": 0}}, {**PLACE, "position": 3}],
    ids=str,
)
def test_params_that_mean_nothing_are_answered_with_an_error(raw, params):
    told = raw.ask("textDocument/hover", params)

    assert told["error"]["code"] == -32602
    assert told["error"]["message"] == "`textDocument/hover` does not take these params"
    assert "error" not in raw.ask("textDocument/hover", PLACE)


@pytest.mark.timeout(60)
def test_a_command_without_arguments_says_what_it_takes(raw):
    told = raw.ask("workspace/executeCommand", {"command": "trc.runTest"})

    assert told["result"] == "this takes the URI of a policy file and a name in it"


@pytest.mark.timeout(60)
def test_requests_behind_the_shutdown_are_refused(raw):
    assert raw.ask("shutdown", None).get("result") is None

    for method in ("shutdown", "textDocument/hover", "no/such"):
        assert raw.ask(method, PLACE)["error"]["code"] == -32600
    raw.send("exit", None)
    assert raw.server.wait(timeout=30) == 0


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
