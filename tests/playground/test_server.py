"""The playground's server: who may ask, what is read and written, and that it agrees with `trc test`."""

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.playground.conftest import TRC
from tokenrouter.compiler import trial
from tokenrouter.compiler.analyse import analysed
from tokenrouter.dsl.load import load
from tokenrouter.playground.app import QUESTIONS, create_app
from tokenrouter.playground.desk import MOST_CHARS, Desk, examples

EXAMPLES = Path(__file__).parents[2] / "examples"
HERE = "http://127.0.0.1:8100"
POLICY = """route 1
model small { use "s" }
policy p {
  start small
  at small { when entropy > 1 nats -> commit otherwise -> stop }
}
"""


def ask(desk=None, what="look", headers=None, **body):
    """Return the answer to one question, and the body."""
    with TestClient(create_app(desk or Desk()), base_url=HERE) as client:
        answer = client.post(f"/ask/{what}", json={"text": POLICY, **body}, headers=headers)
    return answer


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8100"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"host": "[::1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_nobody_but_the_page_may_ask(headers, tmp_path):
    path = tmp_path / "p.route"
    with TestClient(create_app(Desk(path)), base_url=HERE) as client:
        answers = [client.get("/", headers=headers)]
        for what in QUESTIONS:
            answers.append(client.post(f"/ask/{what}", json={"text": POLICY}, headers=headers))

    assert [answer.status_code for answer in answers] == [403] * (1 + len(QUESTIONS))
    assert {len(answer.text.splitlines()) for answer in answers} == {1}
    assert not path.exists()


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8100", "localhost:8100", "[::1]:8100", "10.0.0.7", "box.lan:1"]
)
def test_the_page_may_ask_by_addresses_and_by_names_that_the_server_knows(host):
    headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    with TestClient(create_app(Desk(), ["Box.lan"]), base_url=HERE) as client:
        answer = client.post("/ask/look", json={"text": POLICY}, headers=headers)

    assert answer.status_code == 200
    assert answer.json()["policy"] == "p"


def test_a_browser_is_told_to_load_nothing_from_elsewhere_and_to_run_only_the_pages_scripts():
    with TestClient(create_app(Desk()), base_url=HERE) as client:
        answers = [
            client.get(path) for path in ("/", "/page.js", "/page.css", "/nothing", "/codes/TR2301")
        ]

    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert "access-control-allow-origin" not in answer.headers
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 200]


def test_a_form_of_another_page_cannot_ask_either():
    with TestClient(create_app(Desk()), base_url=HERE) as client:
        answer = client.post(
            "/ask/look", content='{"text": ""}', headers={"content-type": "text/plain"}
        )

    assert answer.status_code == 400
    assert "application/json" in answer.text


@pytest.mark.parametrize(
    "path",
    ["/..%2fpyproject.toml", "/desk.py", "/codes/..%2fx", "/codes/X", "/ask/desk", "/openapi.json"],
)
def test_nothing_else_is_served(path):
    with TestClient(create_app(Desk()), base_url=HERE) as client:
        assert client.get(path).status_code in (404, 405)


def test_a_text_that_is_too_long_is_refused_in_one_line(tmp_path):
    path = tmp_path / "p.route"
    desk = Desk(path)
    for what, text in (
        ("look", "#" * (MOST_CHARS + 1)),
        ("save", "#" * (MOST_CHARS + 1)),
        ("look", "\u20ac" * 10**6),
    ):
        answer = ask(desk, what, text=text)

        assert answer.status_code in (400, 413)
        assert len(answer.json()["error"]["message"].splitlines()) == 1
    assert not path.exists()


@pytest.mark.parametrize(
    "body", [b"", b"[", b"{}", b'{"text": 3}', b'{"text": "\xff"}', b'{"text": "\\ud800"}']
)
def test_a_body_that_is_none_is_refused(body):
    with TestClient(create_app(Desk()), base_url=HERE) as client:
        answer = client.post(
            "/ask/look", content=body, headers={"content-type": "application/json"}
        )

    assert answer.status_code == 400


@pytest.mark.parametrize("place", [(-1, 0), (0, -1), (2**70, 0)])
def test_a_place_that_is_none_is_refused(place):
    line, character = place
    answer = ask(what="complete", text="route 1\n", line=line, character=character)

    assert answer.status_code == 400


def test_only_files_that_the_named_file_named_are_read(tmp_path):
    secret, shared, mine = (
        tmp_path / name for name in ("secret.route", "shared.route", "mine.route")
    )
    secret.write_text('route 1\nmodel hidden { use "h" }\n')
    shared.write_text('route 1\nmodel small { use "s" }\n')
    mine.write_text(POLICY.replace('model small { use "s" }', 'import "shared.route"'))
    desk = Desk(mine)

    assert [p.code for p in desk.look(desk.text, None).problems] == []
    asked = desk.look(POLICY.replace('model small { use "s" }', 'import "secret.route"'), None)
    assert "TR1201" in [p.code for p in asked.problems]
    assert "hidden" not in str(asked)

    assert "not `x`" in desk.plan(POLICY.replace('use "s"', 'use "x"'), None).note
    head = 'head h { kind linear file "secret.route" reads small.{hidden} }\npolicy'
    reading = POLICY.replace("policy", head).replace("entropy > 1 nats", "h > 0.5")
    assert (
        desk.look(reading, None).problems == []
    )  # the file is none of a head, which is not looked at
    assert "not `secret.route`" in desk.plan(reading, None).note


def test_a_string_that_is_typed_is_not_completed_by_the_files_of_a_folder(tmp_path):
    (tmp_path / "other.route").write_text(POLICY)
    desk = Desk(tmp_path / "mine.route")
    text = 'route 1\nimport "'

    assert desk.complete(text, 1, 8) == []
    assert "policy" in [word.label for word in desk.complete("route 1\np", 1, 1)]


def test_a_text_without_a_file_is_not_saved_and_one_that_cannot_be_written_is_told(tmp_path):
    assert "trc playground FILE" in ask(what="save").json()["error"]["message"]

    gone = tmp_path / "gone"
    gone.mkdir()
    desk = Desk(gone / "p.route")
    gone.rmdir()
    answer = ask(desk, "save")
    assert answer.status_code == 400
    assert "cannot be written" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", [example.name for example in examples()])
def test_values_fire_the_rule_that_the_tests_of_the_file_see(name):
    desk, resolved = Desk(), load(EXAMPLES / f"{name}.route")
    for policy in resolved.policies:
        auto, _ = analysed(replace(resolved, policies=(policy,)))
        for outcome in trial.run(auto, policy):
            case = outcome.case
            typed = {}
            for part in case.text.partition(" given ")[2].partition(" -> ")[0].split(", "):
                left, _, right = part.replace(" is ", " = ").partition(" = ")
                if left:
                    typed[left] = right
            text = (EXAMPLES / f"{name}.route").read_text()

            fired = desk.fire(text, policy.name, case.model or "start", typed)

            known = {
                f.name
                for p in desk.look(text, policy.name).places
                if p.name == (case.model or "start")
                for f in p.fields
            }
            if set(typed) <= known:
                assert (fired.rule, fired.wrong) == (outcome.rule, {})


@pytest.mark.parametrize(
    ("given_", "wrong"),
    [
        ({"entropy": "1 -> commit } policy q {"}, True),
        ({"entropy": "1\n2"}, True),
        ({"entropy": "# "}, True),
        ({"entropy": "20%"}, True),
        ({"entropy": '"'}, True),
        ({"nothing": "1", "entropy": "3"}, False),
        ({"entropy": " 3 nats "}, False),
    ],
    ids=str,
)
def test_a_value_is_only_a_value(given_, wrong):
    fired = Desk().fire(POLICY, None, "small", given_)

    assert (list(fired.wrong) == ["entropy"]) == wrong
    assert (fired.rule is None) == wrong


def test_a_place_that_is_none_has_no_rules():
    assert Desk().fire(POLICY, None, "small given entropy = 1 -> commit } #", {}).rule is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_broken_text_is_looked_at(data):
    text = data.draw(st.sampled_from([example.text for example in examples()]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    broken = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    desk = Desk()

    found = desk.look(broken, None)

    errors = [p for p in found.problems if p.severity == "error"]
    assert bool(found.graph) == (not errors and found.policy is not None)
    for place in found.places:
        desk.fire(broken, None, place.name, {})


def trc(*args):
    return subprocess.run(
        [*TRC, "playground", *map(str, args)], capture_output=True, text=True, check=False
    )


def test_what_cannot_be_served_is_told_in_one_line(tmp_path):
    (tmp_path / "p.py").write_text("")
    (tmp_path / "latin.route").write_bytes(b"\xff")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = [
            trc("--port", taken.getsockname()[1]),
            trc(tmp_path / "p.py"),
            trc(tmp_path / "latin.route"),
            trc(tmp_path),
            trc("--host", "no such host"),
            trc("--port", "70000"),
        ]

    for done, wanted in zip(
        told,
        ["in use", "no `.route` file", "UTF-8", "no `.route` file", "no such address", "no port"],
        strict=True,
    ):
        assert done.returncode in (1, 2)
        assert wanted in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_nothing_heavy_is_loaded_to_look_at_a_policy():
    code = (
        "import sys; from tokenrouter.playground.serve import serve; from tokenrouter.playground.desk import Desk, examples; d = Desk()\n"
        "d.look(d.text, None); d.fire(d.text, None, 'small', {'entropy': '1'})\n"
        "print([m for m in ('torch', 'transformers', 'scipy', 'networkx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_without_the_extra_one_line_says_what_to_install():
    code = "import sys; sys.modules['pygls'] = None\nfrom tokenrouter.cli import main; raise SystemExit(main(['playground']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "trc playground: the playground needs `pygls`: pip install 'tokenrouter[lsp]'\n"
    )
