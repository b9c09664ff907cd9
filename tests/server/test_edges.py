"""Models whose vocabularies are padded to other sizes and that end by other ids; and lengths at every edge of page and chunk."""

import signal
import subprocess

import openai
import pytest

from tests.factories import EOS, save_model, tokenizer, vocabulary_size
from tests.server.conftest import POLICY
from tests.server.serving import TRC, serving
from tests.server.test_bad_requests import refused
from tests.server.test_http import TRACED, across_a_handoff, ask, streamed

PAGE, CHUNK = 16, 512


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """A server of two models with 5 and 37 rows of padding; either ends by `EOS`, the second by id 0 too."""
    root = tmp_path_factory.mktemp("uneven")
    save_model(root / "small", seed=1, tied=True, padding=5, context=4096)
    save_model(root / "large", family="qwen2", seed=2, padding=37, eos=(EOS, 0), context=4096)
    (root / "ping_pong.route").write_text(POLICY)
    path = root / "plan.json"
    subprocess.run([*TRC, "compile", str(root / "ping_pong.route"), "-o", str(path)], check=True)
    with serving(path, "--dtype", "float64") as running:
        yield running
        running.idle()
        running.signal(signal.SIGTERM)
        assert running.end() == 0


@pytest.fixture
def client(uneven):
    with openai.OpenAI(base_url=uneven.url, api_key="none", max_retries=0) as made:
        yield made


def test_no_model_writes_an_id_that_the_tokenizer_lacks(client):
    body = {"ignore_eos": True, **TRACED}
    answer = ask(client, temperature=2, n=4, max_tokens=200, logprobs=5, extra_body=body)

    tokens = [token for choice in answer.choices for token in choice.route["trace"]]
    assert len(tokens) == answer.usage.completion_tokens == 800
    assert all(0 <= token["id"] < vocabulary_size() for token in tokens)
    assert {token["model"] for token in tokens} == {"small", "large"}


@pytest.mark.parametrize("id_", [EOS, 0])
@pytest.mark.parametrize("tau", [0, 10])
def test_either_end_of_sequence_ends_a_request_at_either_model(client, id_, tau):
    body = {"route": {"params": {"tau": tau}, "trace": True}}
    given = {"logit_bias": {str(id_): 100}, "temperature": 0, "max_tokens": 9}

    ended = ask(client, extra_body=body, **given).choices[0]
    ignored = ask(client, extra_body={"ignore_eos": True, **body}, **given).choices[0]

    assert (ended.text, ended.finish_reason) == ("", "stop")
    assert [token["id"] for token in ended.route["trace"]] == [id_]
    assert [token["id"] for token in ignored.route["trace"]] == [id_] * 9
    assert ended.route["trace"][0]["model"] == ("large" if tau == 0 else "small")


def test_a_grammar_holds_at_both_models_whatever_their_padding(client):
    for seed in range(6):
        [choice] = ask(
            client, seed=seed, temperature=2, max_tokens=90, extra_body={"regex": "(a|bc){2,6}!"}
        ).choices
        assert choice.finish_reason == "stop" and choice.text.endswith("!")


@pytest.mark.parametrize(
    "n",
    [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, CHUNK - 1, CHUNK, CHUNK + 1],
)
def test_a_prompt_at_an_edge_is_answered_alike_with_a_cold_and_a_warm_prefix_cache(client, n):
    ids = (tokenizer().encode("The sea is wide and the ship is small. ").ids * n)[:n]
    given = {"temperature": 1, "max_tokens": 20, "extra_body": TRACED}

    cold, warm, third = (ask(client, ids, **given).choices[0] for _ in range(3))
    scored = ask(client, ids, echo=True, logprobs=0, **given).choices[0]

    assert cold.route == warm.route == third.route
    assert scored.route["tokens_by_rule"] == cold.route["tokens_by_rule"]
    assert scored.text.endswith(cold.text)


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_parts_of_other_kinds_are_refused_by_their_kind(uneven, kind):
    part = {"type": kind, kind: {"url": "data:,x"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]

    error = refused(uneven.post("/v1/chat/completions", json={"messages": messages}))

    assert error["message"] == f"content of type `{kind}` is not supported"
    assert error["param"] == "messages[0].content"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_across_a_handoff_ends_the_text_where_the_models_end_differently(
    client, stream
):
    body = {"ignore_eos": True, **TRACED}
    given = {"temperature": 1, "seed": 11, "max_tokens": 200}
    [free] = ask(client, extra_body=body, **given).choices
    stop, needed = across_a_handoff(free.route["trace"])

    if stream:
        text, finish, _, usage = streamed(client, stop=stop, extra_body=body, **given)
    else:
        answer = ask(client, stop=stop, extra_body=body, **given)
        text, finish, usage = answer.choices[0].text, answer.choices[0].finish_reason, answer.usage

    assert len(free.route["trace"]) == 200 and free.finish_reason == "length"
    assert (text, finish) == (free.text.partition(stop)[0], "stop")
    assert usage.completion_tokens == needed
