"""`trc top` against a real server, on a pipe and on a terminal, and its figures from samples that are written down."""

import os
import pty
import re
import select
import signal
import subprocess
import termios
import threading
import time

import httpx
import pytest

from tests.server.conftest import bench, plan_path
from tests.server.serving import HANG_S, TRC, serving, wait_until
from tests.server.test_lifecycle import trc
from tokenrouter import cli
from tokenrouter.server.scrape import Look, NoMetrics, Span, parse, root_of
from tokenrouter.server.top import WIDTH, frame

__all__ = ["bench", "plan_path"]

BEFORE = """
# TYPE tokenrouter_requests_running gauge
tokenrouter_requests_running 3
tokenrouter_requests_waiting 1
tokenrouter_tokens_total{model="small",rule="0"} 100
tokenrouter_tokens_total{model="small",rule="none"} 10
tokenrouter_tokens_total{model="large",rule="1"} 50
tokenrouter_model_up{model="small"} 1
tokenrouter_model_up{model="large"} 1
tokenrouter_model_running{model="small"} 2
tokenrouter_model_pending{model="small"} 4
tokenrouter_kv_cache_usage_ratio{model="small"} 0.25
tokenrouter_preemptions_total{model="small"} 7
tokenrouter_handoffs_total{model="small",to="large",rule="0"} 20
tokenrouter_handoffs_total{model="large",to="small",rule="1"} 20
tokenrouter_batch_size_sum{model="small"} 10
tokenrouter_batch_size_count{model="small"} 10
tokenrouter_gate_waiting{model="small"} 5
tokenrouter_window{model="small"} 6
tokenrouter_time_to_first_token_seconds_sum 1
tokenrouter_time_to_first_token_seconds_count 2
"""
AFTER = (
    BEFORE.replace('rule="none"} 10', 'rule="none"} 30')
    .replace('rule="1"} 50', 'rule="1"} 8')  # started anew
    .replace('to="large",rule="0"} 20', 'to="large",rule="0"} 26')
    .replace('sum{model="small"} 10', 'sum{model="small"} 26')
    .replace('count{model="small"} 10', 'count{model="small"} 14')
    .replace("seconds_sum 1", "seconds_sum 1.5")
    .replace("seconds_count 2", "seconds_count 3")
)
ROW = re.compile(r"\S+( +(\d+(\.\d)?|-)){6} +(\d+%|-) +\d+\.\d +(\d+|-)")


def view(before, after, *, colour=False, seconds=2.0):
    span = Span(Look(parse(before), 10.0), Look(parse(after), 10.0 + seconds))
    return frame("http://here", span, colour=colour)


def test_figures_are_taken_over_the_time_between_two_looks():
    head, requests, _, titles, small, large = view(BEFORE, AFTER)

    assert head == "http://here  2 of 2 models up"
    assert requests == ("3 running, 1 waiting; 14.0 tokens/s, 3.0 hand-offs/s; first token 500 ms")
    figures = dict(zip(titles.split(), small.split(), strict=True))
    assert figures == {
        "model": "small",
        "running": "2",
        "waiting": "5",
        "pending": "4",
        "batch": "4.0",
        "window": "6",
        "tokens/s": "10.0",
        "KV": "25%",
        "hand/s": "3.0",
        "preempt": "7",
    }
    assert large.split() == ["large", "-", "-", "-", "-", "-", "4.0", "-", "0.0", "-"]


def test_a_model_that_is_down_says_so_and_nothing_else():
    *_, small, large = view(BEFORE, AFTER.replace('up{model="large"} 1', 'up{model="large"} 0'))

    assert (small.split()[0], large.split()) == ("small", ["large", "down"])


def test_a_view_is_80_columns_wide_whatever_the_names_and_figures():
    big = re.sub(r" (\d+)$", r" \g<1>0000000", AFTER, flags=re.MULTILINE)
    big = re.sub(r"(model_up.*) \d+", r"\1 1", big)
    long = "m" * 40

    *_, titles, first, second = lines = view(
        BEFORE.replace("small", long), big.replace("small", long)
    )

    assert max(map(len, lines)) <= WIDTH
    assert [len(row.split()) for row in (titles, first, second)] == [10, 10, 10]
    assert {"20M", "50M", "70M"} < set(first.split())
    coloured = view(BEFORE, AFTER, colour=True)
    assert "\x1b[1mmodel" in coloured[3] and "\x1b" not in "".join(view(BEFORE, AFTER))


def test_labels_are_read_with_their_escapes_and_harmless():
    [sample] = parse('tokenrouter_model_up{model="a\\"b\\\\c\\n\x1b[2J"} 1')["model_up"]

    assert sample.labels == {"model": 'a"b\\c \\x1b[2J'}
    assert parse("tokenrouter_model_up nothing\nother 1\n???\n") == {}


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://a:1/v1", "http://a:1"),
        ("a:1", "http://a:1"),
        ("https://a/x/v1/", "https://a/x"),
    ],
)
def test_a_url_is_taken_with_and_without_its_ends(url, root):
    assert root_of(url) == root


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:b", "http://[::1"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(NoMetrics, match="is no URL of a server"):
        root_of(url)


@pytest.fixture(scope="module")
def server(plan_path):
    """A server under a key that writes long answers all the time."""
    with serving(plan_path, "--api-key", "k", "--log-level", "warning") as running:
        ends = threading.Event()
        body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "temperature": 1}

        def client():
            while not ends.is_set():
                httpx.post(
                    running.url + "/completions",
                    json=body,
                    headers={"authorization": "Bearer k"},
                    timeout=HANG_S,
                )

        threads = [threading.Thread(target=client) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield running
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        running.signal(signal.SIGTERM)
        assert running.end() == 0


def environment(**more):
    return {**os.environ, "TOKENROUTER_API_KEY": "k", "TERM": "xterm", **more}


def test_one_view_on_a_pipe_is_plain_text_with_every_figure(server):
    def looks():
        done = trc("top", server.url, "--once", "--interval", "0.5", env=environment())
        assert (done.returncode, done.stderr) == (0, "")
        seen.append(done.stdout)
        return " - " not in seen[-1] and "2 running" in seen[-1]

    seen = []
    wait_until(
        looks
    )  # tallies come twice a second, and a client is between two requests now and then
    out = seen[-1]

    assert "\x1b" not in out and max(map(len, out.splitlines())) <= WIDTH
    head, requests, _, _, small, large = out.splitlines()
    assert head.endswith("2 of 2 models up") and requests.startswith("2 running, 0 waiting")
    for row in (small, large):
        assert ROW.fullmatch(row), row
    assert float(small.split()[6]) > 0 and float(small.split()[8]) > 0


class Terminal:
    """`trc top` on a terminal of its own."""

    def __init__(self, *args, **variables):
        self.ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [*TRC, "top", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(**variables),
            preexec_fn=os.setsid,
        )
        self.seen = ""

    def read_until(self, holds):
        deadline = time.monotonic() + HANG_S
        while not holds(self.seen):
            assert time.monotonic() < deadline, self.seen
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536).decode()

    def ended(self):
        status = self.process.wait(HANG_S)
        while select.select([self.ours], [], [], 0.1)[0]:
            self.seen += os.read(self.ours, 65536).decode()
        restored = termios.tcgetattr(self.theirs) == self.before
        return status, restored

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal():
    opened = []

    def open_one(*args, **variables):
        opened.append(Terminal(*args, **variables))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def views(seen):
    return seen.split("\x1b[H")[2:]  # after the one without figures


@pytest.mark.parametrize("how", ["q", "interrupt", "terminate"])
def test_a_live_view_is_drawn_again_until_it_is_ended_and_leaves_the_terminal_as_it_was(
    server, terminal, how
):
    top = terminal(server.url, "--interval", "0.2")
    top.read_until(lambda seen: len(views(seen)) > 2)

    if how == "q":
        os.write(top.ours, b"q")
    else:
        top.process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGTERM)

    assert top.ended() == (0, True)
    assert top.seen.count("\x1b[?1049h") == top.seen.count("\x1b[?1049l") == 1
    assert top.seen.endswith("\x1b[?25h\x1b[?1049l")
    assert all("models up" in each and "preempt" in each for each in views(top.seen)[:-1])
    assert "\x1b[1mmodel" in top.seen and "Traceback" not in top.seen


def test_no_color_is_kept_to_and_a_dumb_terminal_gets_plain_text(server, terminal):
    plain = terminal(server.url, "--interval", "0.2", NO_COLOR="1")
    plain.read_until(lambda seen: len(views(seen)) > 1)
    dumb = terminal(server.url, "--once", "--interval", "0.2", TERM="dumb")

    assert "\x1b[1m" not in plain.seen and "\x1b[?1049h" in plain.seen
    assert dumb.ended()[0] == 0 and "\x1b" not in dumb.seen and "models up" in dumb.seen


def test_a_server_that_goes_away_is_told_in_the_view_which_goes_on(plan_path, terminal):
    with serving(plan_path) as server:
        top = terminal(server.url, "--interval", "0.2")
        top.read_until(lambda seen: views(seen))
        server.signal(signal.SIGTERM)
        assert server.end() == 0
        top.read_until(lambda seen: "does not answer" in seen)
        os.write(top.ours, b"q")

        assert top.ended() == (0, True)


def one_line(capsys, *args):
    status = cli.main(["top", *args])
    [line] = capsys.readouterr().err.splitlines()
    return status, line


def test_a_key_that_lacks_or_is_wrong_is_one_line(server, capsys, monkeypatch):
    monkeypatch.delenv("TOKENROUTER_API_KEY", raising=False)

    for args in ([], ["--api-key", "other"]):
        status, line = one_line(capsys, server.url, *args)
        assert status == 1 and line.endswith("--api-key or $TOKENROUTER_API_KEY")


def test_an_address_where_nothing_answers_is_one_line(capsys):
    status, line = one_line(capsys, "http://127.0.0.1:9")

    assert status == 1 and line.endswith("is the server running?") and "127.0.0.1:9" in line


@pytest.mark.parametrize("given", ["0", "nan", "x", "1e9"])
def test_an_interval_that_cannot_be_is_wrong_usage(given, capsys):
    assert cli.main(["top", "--interval", given]) == 2
    assert f"`{given}`" in capsys.readouterr().err
