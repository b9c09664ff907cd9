"""A real VS Code, in a browser: the packaged extension does there what it promises. `tools/workbench.sh` puts VS Code in place."""

import json
import shutil
import socket
import subprocess
import time
from contextlib import closing, contextmanager

import pytest

from tests.editors.conftest import ROOT, TRC, VSCODE

ENTRY = ROOT / ".cache/workbench/node_modules/code-server/out/node/entry.js"
SECONDS = 60_000  # milliseconds that anything may take on a busy machine
BROKEN = """route 1

model small { use "s" }
model large {use "l"}

policy stitch {
    start small
  at any {
    when entropy>1 nats && margin < 10%->borrow large for 4
    otherwise -> commit
  }
}

test "an unsure token goes to large" for stitch {
  at small given entropy = 3, margin = 1% -> borrow large for 4
}
"""
MENDED = """route 1

model small { use "s" }
model large { use "l" }

policy stitch {
  start small
  at any {
    when entropy > 1 nats and margin < 10% -> borrow large for 4
    otherwise                              -> commit
  }
}

test "an unsure token goes to large" for stitch {
  at small given entropy = 3, margin = 1% -> borrow large for 4
}
"""
PYTHON = """from tokenrouter.lang import at, commit, model, policy, retry

small = model("s")
large = model("l")


@policy(start=small)
class Stitch:
    @at(small)
    def small_step(step):
        while step.entropy > 1:
            return retry(large)
        return commit()
"""


@pytest.fixture(scope="module")
def workbench(node, tmp_path_factory):
    """Return the address of a VS Code with the packaged extension, and the folder that is open in it."""
    assert ENTRY.is_file(), "run `sh tools/workbench.sh` first"
    node("npm", "run", "--silent", "package")
    package = VSCODE / "tokenrouter.vsix"
    home = tmp_path_factory.mktemp("workbench")
    folder = home / "policies"
    folder.mkdir()
    for name, text in (("p.route", BROKEN), ("stitch.py", PYTHON)):
        (folder / name).write_text(text, encoding="utf-8")
    settings = {
        "tokenrouter.command": TRC,
        "workbench.startupEditor": "none",
        "workbench.colorTheme": "Default Dark Modern",
        "editor.minimap.enabled": False,
        "files.autoSave": "off",
        "telemetry.telemetryLevel": "off",
        "extensions.autoCheckUpdates": False,
        "extensions.ignoreRecommendations": True,
    }
    (home / "data/User").mkdir(parents=True)
    (home / "data/User/settings.json").write_text(json.dumps(settings), encoding="utf-8")
    node = [shutil.which("node"), str(ENTRY), "--user-data-dir", str(home / "data")]
    node += ["--extensions-dir", str(home / "extensions"), "--config", str(home / "config.yaml")]
    subprocess.run([*node, "--install-extension", str(package)], check=True, timeout=120)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    off = ["--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"]
    server = subprocess.Popen([*node, "--auth", "none", "--bind-addr", address, *off], cwd=ROOT)
    try:
        wait(lambda: answers(address))
        yield f"http://{address}/?folder={folder}", folder
    finally:
        server.terminate()
        server.wait(20)


def answers(address):
    host, port = address.split(":")
    with closing(socket.socket()) as asked:
        return asked.connect_ex((host, int(port))) == 0


def wait(holds):
    end = time.monotonic() + SECONDS / 1000
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


class Window:
    """What a person does in the window."""

    def __init__(self, page):
        self.page = page

    def command(self, name):
        """Run a command from the palette."""
        self.page.keyboard.press("F1")
        self.page.wait_for_selector(".quick-input-box input", timeout=SECONDS)
        self.page.keyboard.type(name)
        row = f".quick-input-list .monaco-list-row.focused:has-text({json.dumps(name)})"
        self.page.wait_for_selector(row, timeout=SECONDS)
        self.page.keyboard.press("Enter")

    def open(self, name):
        """Open a file."""
        self.page.dblclick(f".explorer-folders-view .monaco-list-row:has-text('{name}')")
        self.page.wait_for_selector(f".tab.active[data-resource-name='{name}']", timeout=SECONDS)
        self.page.wait_for_selector(".monaco-editor .view-line", timeout=SECONDS)

    def problems(self, *texts):
        """Wait for these texts in the list of problems."""
        self.command("Problems: Focus on Problems View")
        for text in texts:
            self.page.wait_for_selector(
                f".markers-panel .monaco-list-row:has-text({json.dumps(text)})", timeout=SECONDS
            )

    def graph(self, text):
        """Wait for a text in the graph."""
        from playwright.sync_api import Error

        def shown():
            found = f"svg text:has-text({json.dumps(text)})"
            try:
                return any(frame.locator(found).count() for frame in self.page.frames)
            except Error:  # the frame was replaced meanwhile by the next picture's
                return False

        wait(shown)


@contextmanager
def window(address):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        page.wait_for_selector(".explorer-folders-view .monaco-list-row", timeout=SECONDS)
        try:
            yield Window(page)
        except BaseException:
            page.screenshot(path=str(ROOT / ".cache/workbench/failed.png"))
            raise
        finally:
            browser.close()


@pytest.mark.slow
def test_a_broken_policy_is_mended_saved_drawn_tested_and_explained(workbench):
    address, folder = workbench
    file = folder / "p.route"
    with window(address) as code:
        code.open("p.route")
        code.problems("`&&` is written `and` here")
        code.page.click(".tab.active")
        code.page.click(".monaco-editor .view-line >> nth=0")
        code.command("Fix All")
        wait(lambda: "and margin" in code.page.inner_text(".view-lines").replace("\xa0", " "))
        code.page.keyboard.press("Control+s")
        wait(lambda: file.read_text(encoding="utf-8") == MENDED)

        code.command("tokenrouter: Show the Transition Graph")
        code.graph("margin < 0.1 -> borrow large for 4")
        file.write_text(
            MENDED.replace("10% -> borrow large for 4", "10% -> borrow large for 5"),
            encoding="utf-8",
        )
        wait(lambda: "large for 5" in code.page.inner_text(".view-lines").replace("\xa0", " "))
        code.page.click(".monaco-editor .view-line >> nth=0")
        code.page.keyboard.press("Control+s")
        code.graph("borrow large for 5")

        code.command("tokenrouter: Run a Test")
        said = ".output-view .view-lines"
        wait(lambda: "1 failed" in code.page.inner_text(said).replace("\xa0", " "))
        code.page.click(".editor-group-container .view-line >> nth=0")
        code.command("tokenrouter: Explain a Policy")
        wait(lambda: "state small" in code.page.inner_text(said).replace("\xa0", " "))


@pytest.mark.slow
def test_a_policy_in_python_shows_its_mistakes_and_the_server_formats_no_python(workbench):
    address, _ = workbench
    with window(address) as code:
        code.open("stitch.py")
        code.problems("a step function holds")
        code.page.click(".monaco-editor .view-line >> nth=0")
        code.command("Format Document")
        text = "There is no formatter for 'python' files installed"
        code.page.wait_for_selector(
            f".monaco-dialog-box:has-text({json.dumps(text)})", timeout=SECONDS
        )
