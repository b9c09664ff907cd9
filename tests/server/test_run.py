"""`trc run`: one prompt, in this process, on a terminal and in a pipe."""

import argparse
import json
import os
import pty
import re
import subprocess

import pytest

from tests.server.serving import HANG_S, TRC
from tokenrouter.commands import run
from tokenrouter.server.protocol import NEUTRAL, NO_EFFECT, GenerationRequest

SAMPLED = ("--raw", "--temperature", "1", "--seed", "7", "--max-tokens", "24", "--dtype", "float64")


def trc(*args, stdin=b""):
    command = [*TRC, "run", *map(str, args)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=HANG_S, check=False)


def on_a_terminal(*args, env=()):
    """Return the exit status and what a terminal shows."""
    ours, theirs = pty.openpty()
    command = [*TRC, "run", *map(str, args)]
    environment = {**os.environ, "TERM": "xterm", **dict(env)}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # Linux tells the end of a terminal so
            pass
        status = process.wait(HANG_S)
    os.close(ours)
    return status, shown.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def answered(plan_path):
    """What one sampled run says of itself as JSON."""
    done = trc(plan_path, "--prompt", "The sea", *SAMPLED, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_json_names_text_usage_and_route(answered):
    details = answered["usage"]["completion_tokens_details"]["tokens_by_model"]

    assert answered["policy"] == "ping_pong"
    assert answered["finish_reason"] in ("stop", "length")
    assert details == answered["route"]["tokens_by_model"]
    assert sum(details.values()) == answered["usage"]["completion_tokens"] <= 24
    assert answered["route"]["seed"] == 7


def test_a_run_answers_what_the_server_answers(answered, client):
    served = client.completions.create(
        model="ping_pong", prompt="The sea", temperature=1, seed=7, max_tokens=24
    )

    assert served.choices[0].text == answered["text"]
    assert served.choices[0].route == answered["route"]


def test_a_pipe_gets_the_text_and_nothing_else(plan_path, answered):
    done = trc(plan_path, "--prompt", "-", *SAMPLED, stdin=b"The sea")

    assert done.stdout.decode() == answered["text"] + "\n"
    assert re.search(
        r"\d+ tokens: small \d+ .*, large \d+ .*hand-off.*tokens/s", done.stderr.decode()
    )


def test_a_terminal_shows_each_token_in_the_ink_of_its_model(plan_path, answered):
    status, shown = on_a_terminal(plan_path, "--prompt", "The sea", *SAMPLED)

    assert status == 0
    assert "\x1b[36msmall\x1b[0m  \x1b[1;33mlarge\x1b[0m" in shown
    answer = shown.split("\n\n", 1)[1]
    assert answer.count("\x1b[1;33m") > 0 and answer.count("\x1b[36m") > 0


def test_no_color_marks_with_brackets(plan_path):
    env = {"NO_COLOR": "1"}

    _, shown = on_a_terminal(plan_path, "--prompt", "The sea", *SAMPLED, env=env)

    assert "\x1b" not in shown
    assert "small  [large]" in shown
    assert shown.split("\n\n", 1)[1].count("[") > 0


def test_the_trace_holds_each_token_with_model_rule_and_signals(tmp_path, plan_path, answered):
    path = tmp_path / "trace.jsonl"

    done = trc(plan_path, "--prompt", "The sea", *SAMPLED, "--trace", path)

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert done.returncode == 0
    assert [line["position"] for line in lines] == list(range(len(lines)))
    assert "".join(line["token"]["text"] for line in lines) == answered["text"]
    assert {line["token"]["model"] for line in lines} == {"small", "large"}
    assert all(line["token"]["signals"] for line in lines if line["token"]["model"] == "small")


def test_a_dial_is_set_by_name(plan_path):
    for value, owner in (("0", "large"), ("10", "small")):
        done = trc(plan_path, "--prompt", "x", "--set", f"tau={value}", "--json")

        by_model = json.loads(done.stdout)["route"]["tokens_by_model"]
        assert by_model[owner] == sum(by_model.values()) > 0


def test_a_stop_string_ends_the_text(plan_path, answered):
    stop = answered["text"][3:5]

    done = trc(plan_path, "--prompt", "The sea", *SAMPLED, "--json", "--stop", stop)

    result = json.loads(done.stdout)
    assert result["text"] == answered["text"].partition(stop)[0]
    assert result["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("name", "text", "pattern"),
    [
        ("--regex", None, "(yes|no)!"),
        ("--grammar", 'start: "<" /[ab]{2}/ ">"', "<[ab]{2}>"),
        ("--json-schema", '{"enum": ["ship", "sea"]}', '"(ship|sea)"'),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_answer_follows_what_it_is_told_to_follow(tmp_path, plan_path, name, text, pattern):
    file = tmp_path / "wanted"
    file.write_text(text or "")
    value = file if text else pattern

    done = trc(plan_path, "--prompt", "x", "--temperature", "1", "--json", name, value)

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert re.fullmatch(pattern, result["text"]) and result["finish_reason"] == "stop"


def test_penalties_and_what_goes_with_them_are_those_of_a_request(plan_path, client):
    given = {"temperature": 1, "seed": 7, "max_tokens": 24, "presence_penalty": 1.5}
    body = {"ignore_eos": True, "repetition_penalty": 1.4}
    options = ("--presence-penalty", 1.5, "--frequency-penalty", -0.5, "--ignore-eos")

    done = trc(
        plan_path, "--prompt", "The sea", *SAMPLED, *options, "--repetition-penalty", 1.4, "--json"
    )
    served = client.completions.create(
        model="ping_pong", prompt="The sea", frequency_penalty=-0.5, extra_body=body, **given
    )

    result = json.loads(done.stdout)
    assert (result["text"], result["route"]) == (served.choices[0].text, served.choices[0].route)
    assert result["usage"]["completion_tokens"] == 24


def test_biases_stop_ids_and_metadata_are_those_of_a_request(plan_path, client, answered):
    ids = [ord(char) for char in "abc"]
    body = {"stop_token_ids": ids[:2], "route": {"metadata": {"tier": "pro", "n": 2, "x": True}}}
    options = (
        "--logit-bias",
        f"{ids[2]}=3.5",
        "--logit-bias",
        "70=-100",
        "--stop-token-id",
        ids[0],
    )
    options += ("--stop-token-id", ids[1], "--metadata", "tier=pro", "--metadata", "n=2")

    done = trc(
        plan_path, "--prompt", "The sea", *SAMPLED, *options, "--metadata", "x=true", "--json"
    )
    served = client.completions.create(
        model="ping_pong", prompt="The sea", temperature=1, seed=7, max_tokens=24, extra_body=body,
        logit_bias={str(ids[2]): 3.5, "70": -100},
    )  # fmt: skip

    result = json.loads(done.stdout)
    assert (result["text"], result["route"]) == (served.choices[0].text, served.choices[0].route)
    assert result["text"] != answered["text"]


def test_every_choice_that_a_request_has_is_an_option():
    parser = argparse.ArgumentParser()
    run.configure(parser)
    options = {o[2:].replace("-", "_") for a in parser._actions for o in a.option_strings}
    spelled = {"response_format": "json_schema", "stop_token_ids": "stop_token_id", "route": "set"}
    # One choice, shown as it comes, by itself and waited for: these mean nothing here.
    without = {"model", "n", "stream", "stream_options", "priority", "timeout"}

    fields = set(GenerationRequest.__struct_fields__) - without - set(NO_EFFECT) - set(NEUTRAL)

    assert {spelled.get(field, field) for field in fields} <= options | {"metadata"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--prompt", "x", "--logit-bias", "999999=1"), "`logit_bias` is outside"),
        (("--prompt", "x", "--logit-bias", "5=101"), "`logit_bias"),
        (("--prompt", "x", "--stop-token-id", "-1"), "`stop_token_ids` is outside"),
        (("--prompt", "x", "--metadata", "tier"), "`--metadata tier` is not NAME=VALUE"),
        (("--prompt", "x", "--regex", "("), "`regex`: "),
        (("--prompt", "x", "--regex", "a", "--ignore-eos"), "exclude each other"),
        (("--prompt", "x", "--json-schema", __file__), "is no JSON"),
        (("--prompt", "x", "--grammar", "/nowhere.lark"), "/nowhere.lark"),
        (("--prompt", "x", "--presence-penalty", "3"), "`presence_penalty`: expected"),
        (("--prompt", "", "--raw"), "the prompt is empty"),
        (("--prompt", "x " * 9000, "--raw"), "the context holds"),
        (("--prompt", "x", "--temperature", "-1"), "`temperature`: expected `float` >= 0.0"),
        (("--prompt", "x", "--set", "tua=1"), "did you mean `tau`"),
        (("--prompt", "x", "--set", "tau=99"), "`tau` lies in [0, 10]"),
        (("--prompt", "x", "--set", "tau"), "`--set tau` is not NAME=VALUE"),
        (("--prompt", b"\xff"), "not valid UTF-8"),
        (("--prompt", "x", "--trace", "/nowhere/trace.jsonl"), "/nowhere/trace.jsonl"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_input_is_one_line(plan_path, args, says):
    command = [*TRC, "run", str(plan_path), *args]
    done = subprocess.run(command, capture_output=True, timeout=HANG_S, check=False)

    assert done.returncode == 1
    assert done.stdout == b""
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("trc run: ") and says in line


def test_stdin_that_is_no_text_is_refused(plan_path):
    done = trc(plan_path, "--prompt", "-", stdin=b"\xff\xfe")

    assert (done.returncode, done.stderr) == (1, b"trc run: the prompt is not valid UTF-8\n")


@pytest.mark.parametrize(
    "args", [("--temperature", "nan"), ("--logit-bias", "5"), ("--logit-bias", "x=1")], ids=str
)
def test_a_number_that_is_none_is_wrong_usage(plan_path, args):
    done = trc(plan_path, "--prompt", "x", *args)

    assert done.returncode == 2
