"""The `route` field of a request, through OpenAI's client: dials, metadata, and who wrote what by which rule."""

import signal
import subprocess
from collections import Counter

import openai
import pytest

from tests.server.serving import TRC, serving
from tests.server.test_http import PROMPTS, ask

TIERS = """route 1
model small { use "small" cost 1.0 }
model large { use "large" cost 4.0 }
param tau: nats = 1.0 in [0.0, 10.0]
param tail: count = 4 in [1, 20]
param cautious: bool = false
policy tiers {
  start {
    when request.tier == "pro" -> large
    otherwise -> small
  }
  at small {
    when position < request.lead -> commit
    when cautious -> retry large
    when entropy > tau -> commit then large
    otherwise -> commit
  }
  at large {
    when since_switch >= tail -> commit then small
    otherwise -> commit
  }
}
"""


@pytest.fixture(scope="module")
def tiers(bench):
    policy, path = bench / "tiers.route", bench / "tiers.json"
    policy.write_text(TIERS)
    subprocess.run([*TRC, "compile", str(policy), "-o", str(path)], check=True)
    with serving(path, "--dtype", "float64", "--name", "ping_pong") as running:
        yield running
        running.idle()
        running.signal(signal.SIGTERM)
        assert running.end() == 0


@pytest.fixture
def client(tiers):
    with openai.OpenAI(base_url=tiers.url, api_key="none", max_retries=0) as made:
        yield made


def routed(client, stream, prompt=PROMPTS[1], **route):
    """Return the totals and the trace of one choice, whole or put together from a stream."""
    given = {"temperature": 1, "max_tokens": 40, "extra_body": {"ignore_eos": True, "route": route}}
    if not stream:
        [choice] = ask(client, prompt, **given).choices
        return choice.route, choice.route.get("trace")
    reports = []
    for chunk in ask(client, prompt, stream=True, **given):
        [choice] = chunk.choices
        assert choice.finish_reason or set(getattr(choice, "route", {})) <= {"trace"}
        reports.append(getattr(choice, "route", {}))
    traces = [report["trace"] for report in reports if "trace" in report]
    assert len(traces) in (0, len(reports))
    return reports[-1], [token for trace in traces for token in trace] if traces else None


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_tells_how_many_tokens_each_model_wrote_by_each_rule(client, stream):
    totals, trace = routed(client, stream, trace=True, params={"tau": 1.5}, metadata={"lead": 3})

    by_model = Counter(token["model"] for token in trace)
    by_rule = Counter((token["model"], token["rule"], token["line"]) for token in trace)
    assert len(trace) == 40 and totals["tokens_by_model"] == by_model
    counted = {(r["model"], r["rule"], r["line"]): r["tokens"] for r in totals["tokens_by_rule"]}
    assert counted == by_rule
    assert totals["handoffs"] > 0 and set(by_model) == {"small", "large"}
    lines = TIERS.splitlines()
    for model, rule, line in by_rule:
        assert "commit" in lines[line - 1], (model, rule, line)
    assert all("request.lead" in lines[token["line"] - 1] for token in trace[:3])
    assert any("then large" in lines[line - 1] for _, _, line in by_rule)
    for token in trace:
        assert token["logprob"] <= 0
        if "then large" in lines[token["line"] - 1]:
            assert token["signals"]["entropy"] > 1.5


@pytest.mark.parametrize("stream", [False, True])
def test_without_a_trace_the_totals_are_the_same_and_no_token_is_told(client, stream):
    totals, trace = routed(client, stream)
    traced, tokens = routed(client, stream, trace=True)

    assert trace is None and "trace" not in totals and len(tokens) == 40
    assert {k: v for k, v in traced.items() if k != "trace"} == totals


def test_metadata_chooses_where_a_request_begins(client):
    for tier, owner in (("pro", "large"), ("free", "small"), (None, "small")):
        sent = {} if tier is None else {"metadata": {"tier": tier}}
        _, trace = routed(client, False, trace=True, **sent)
        assert trace[0]["model"] == owner


def test_dials_hold_for_one_request_and_for_no_other(client):
    plain, _ = routed(client, False)
    cautious, _ = routed(client, False, params={"cautious": True, "tail": 20})
    long, trace = routed(client, False, trace=True, params={"tau": 0, "tail": 20})
    again, _ = routed(client, False)

    assert plain == again
    assert cautious["tokens_by_model"]["small"] < plain["tokens_by_model"]["small"]
    longest = max(len(run) for run in "".join(t["model"][0] for t in trace).split("s"))
    assert longest >= 20 and long["handoffs"] > 0


@pytest.mark.parametrize(
    ("route", "says"),
    [
        ({"params": {"tau": 10.001}}, "param `tau` lies in [0, 10]"),
        ({"params": {"tau": -1e-9}}, "param `tau` lies in [0, 10]"),
        ({"params": {"tail": 0}}, "param `tail` lies in [1, 20]"),
        ({"params": {"tua": 1}}, "the policy has no param `tua`; did you mean `tau`"),
        ({"params": {"Tail": 2}}, "did you mean `tail`"),
        ({"params": {"cautios": True}}, "did you mean `cautious`"),
        ({"params": {"x": 1}}, "there are `tau`, `tail` and `cautious`"),
        ({"params": {"cautious": 1}}, "param `cautious` is a bool"),
        ({"params": {"tau": True}}, "param `tau` is a number"),
        ({"metadata": {"tier": 1}}, "the policy reads metadata `tier` as text"),
        ({"metadata": {"lead": "3"}}, "the policy reads metadata `lead` as a number"),
        ({"metadata": {"lead": True}}, "the policy reads metadata `lead` as a number"),
        ({"metadata": {str(i): 1 for i in range(33)}}, "more than 32 entries"),
        ({"tau": 1}, "unknown field `route.tau`"),
        ({"trace": "yes"}, "`route.trace`: expected `bool | null`, got `str`"),
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_route_that_cannot_be_taken_is_refused_before_anything_is_sent(
    client, route, says, stream
):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, stream=stream, extra_body={"route": route})

    assert says in caught.value.body["message"]
    assert caught.value.body["param"].startswith("route")


def test_metadata_that_no_rule_reads_changes_nothing(client):
    plain, _ = routed(client, False)
    other, _ = routed(client, False, metadata={"team": "x", "n": 5, "beta": True})

    assert plain == other


def test_the_chat_tells_its_route_in_the_same_way(client):
    given = {"model": "ping_pong", "messages": [{"role": "user", "content": "x"}], "seed": 3}
    given |= {"max_tokens": 30, "temperature": 1, "extra_body": {"route": {"trace": True}}}

    [whole] = client.chat.completions.create(**given).choices
    chunks = [c.choices[0] for c in client.chat.completions.create(stream=True, **given)]

    traced = [token for piece in chunks for token in piece.route["trace"]]
    assert traced == whole.route["trace"]
    totals = {k: v for k, v in whole.route.items() if k != "trace"}
    assert {k: v for k, v in chunks[-1].route.items() if k != "trace"} == totals
    assert "".join(token["text"] for token in traced) == whole.message.content
