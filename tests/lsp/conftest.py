"""A server process over stdio for each module of tests, and an editor that talks to it."""

import sys

import pytest_lsp
from lsprotocol import types as t
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from tests.lsp.editor import Editor

SERVER = [sys.executable, "-m", "tokenrouter.cli", "lsp"]


@pytest_lsp.fixture(config=ClientServerConfig(server_command=SERVER), scope="module")
async def client(lsp_client: LanguageClient, tmp_path_factory):
    folder = tmp_path_factory.mktemp("workspace")
    capabilities = client_capabilities("visual-studio-code")
    capabilities.workspace.inlay_hint = t.InlayHintWorkspaceClientCapabilities(refresh_support=True)
    options = {"set": {"dial": 2.5, "shut": True}}
    lsp_client.editor = Editor(lsp_client, folder)
    lsp_client.told = await lsp_client.initialize_session(
        t.InitializeParams(
            capabilities=capabilities,
            workspace_folders=[t.WorkspaceFolder(folder.as_uri(), "workspace")],
            initialization_options=options,
        )
    )
    yield
    await lsp_client.shutdown_session()
