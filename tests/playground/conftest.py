"""A playground in a process of its own, and a Chromium that looks at it."""

import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

TRC = [sys.executable, "-c", "from tokenrouter.cli import main; raise SystemExit(main())"]


@contextmanager
def playground(*args):
    """Start `trc playground` on a free port, and yield the address that it prints."""
    command = [*TRC, "playground", "--port", "0", "--no-open", *map(str, args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline()
            yield re.search(r"http://\S+(?=;)", said)[0]
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def chromium():
    """Return a headless Chromium; it ends with the module, since playwright keeps this thread's event loop as long."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium")
    assert found, "Chromium is not installed; tools/chromium.sh installs it on Debian, as root"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server():
    """Return the address of a playground that begins with an example."""
    with playground() as url:
        yield url


@contextmanager
def looking(chromium, url, **kind):
    """Yield a page once it shows everything; assert afterwards that it asked nobody else and that no script failed."""
    page = chromium.new_page(viewport={"width": 1280, "height": 800}, **kind)
    asked, failed = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda said: failed.append(said.text) if said.type == "error" else None)
    page.goto(url)
    page.wait_for_selector("#graph img")
    page.wait_for_selector("#rules li")
    yield page
    assert [other for other in asked if not other.startswith((url, "data:"))] == []
    assert failed == []
    page.close(run_before_unload=False)


@pytest.fixture
def page(chromium, server):
    """Return the page of a playground that begins with an example."""
    with looking(chromium, server) as shown:
        yield shown
