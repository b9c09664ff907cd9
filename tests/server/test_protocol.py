"""What a request may say, and how a wrong one is refused: always a 4xx that names the field, in valid JSON."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenrouter.server.errors import ApiError
from tokenrouter.server.protocol import (
    MAX_STOP_CHARS,
    MAX_STOPS,
    NEUTRAL,
    NO_EFFECT,
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    read,
    turns,
)


def completion(**fields):
    return read(json.dumps({"prompt": "x", **fields}).encode(), CompletionRequest)


def chat(**fields):
    body = {"messages": [{"role": "user", "content": "x"}], **fields}
    return read(json.dumps(body).encode(), ChatRequest)


def refusal(call, **fields):
    with pytest.raises(ApiError) as caught:
        call(**fields)
    assert caught.value.status == 400
    detail = json.loads(msgspec.json.encode(caught.value.body))["error"]
    assert "\n" not in detail["message"]
    return detail


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m", x}',
        b"[]",
        b"null",
        b"5",
        b"",
        b"{} x",
        b'{"prompt": "\\ud83d"}',
        b'{"prompt": "\xed\xa0\xbd"}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "x", "top_p": 1e400}',
        b'{"prompt": "x", "logit_bias": ' + b"[" * 100_000,
        b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}",
        b"{}",
    ],
    ids=range(14),
)
def test_a_broken_body_is_refused_in_valid_json(body):
    with pytest.raises(ApiError) as caught:
        read(body, CompletionRequest)

    assert caught.value.status == 400
    assert json.loads(msgspec.json.encode(caught.value.body))["error"]["message"]


@pytest.mark.parametrize(
    ("body", "lone"),
    [
        (b'{"prompt": "\\ud83d"}', True),
        (b'{"prompt": "\\ud83d and more text"}', True),
        (b'{"prompt": "\\ude00"}', True),
        (b'{"\\ud83d": "x"}', True),
        (b'{"prompt": "\\ud83d', False),
        (b'{"prompt": "x"', False),
        (b"", False),
        (b"[" * 100_000, False),
    ],
    ids=range(8),
)
def test_half_of_a_surrogate_pair_is_called_that_and_only_what_is_cut_a_truncation(body, lone):
    with pytest.raises(ApiError) as caught:
        read(body, CompletionRequest)

    assert ("half of a surrogate pair" in str(caught.value)) == lone
    assert not lone or "truncated" not in str(caught.value)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_no_body_is_too_strange_to_be_refused(body):
    for kind in (CompletionRequest, ChatRequest):
        with pytest.raises(ApiError) as caught:
            read(body, kind)
        json.loads(msgspec.json.encode(caught.value.body))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 101),
        ("temperature", True),
        ("temperature", "1"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 2),
        ("n", 0),
        ("n", 129),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("stop", [""]),
        ("stop", ""),
        ("stop", ["x"] * (MAX_STOPS + 1)),
        ("stop", "x" * (MAX_STOP_CHARS + 1)),
        ("stop_token_ids", [1] * 257),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
    ],
    ids=lambda v: str(v)[:20],
)
def test_a_value_out_of_range_is_refused_by_name(field, value):
    for call in (completion, chat):
        assert refusal(call, **{field: value})["param"] == field


@pytest.mark.parametrize("value", [0, 1e-8, 1, 100])
def test_temperatures_at_the_edges_are_taken(value):
    assert completion(temperature=value).temperature == value


@pytest.mark.parametrize("value", [1e-9, 0.9999999, 1])
def test_top_p_at_the_edges_is_taken(value):
    assert completion(top_p=value).top_p == value


def test_null_means_the_default_for_every_field():
    for kind, given_ in ((CompletionRequest, {"prompt": "x"}), (ChatRequest, {"messages": []})):
        fields = {name: None for name in kind.__struct_fields__ if name not in given_}

        request = read(json.dumps({**fields, **given_}).encode(), kind)

        assert request == msgspec.convert(given_, kind)


def test_an_unknown_field_is_refused_by_name():
    assert refusal(completion, temprature=1)["message"] == "unknown field `temprature`"
    assert refusal(chat, route={"tau": 1})["param"] == "route.tau"
    assert refusal(chat, messages=[{"role": "user", "text": "x"}])["param"] == "messages[0].text"


@pytest.mark.parametrize("field", NEUTRAL)
def test_what_is_not_supported_is_refused_and_taken_where_it_asks_for_nothing(field):
    kinds = [
        (kind, call)
        for kind, call in ((CompletionRequest, completion), (ChatRequest, chat))
        if field in kind.__struct_fields__
    ]

    assert kinds
    for _, call in kinds:
        detail = refusal(call, **{field: {"some": "thing"}})
        assert (detail["param"], detail["code"]) == (field, "unsupported")
        for neutral in NEUTRAL[field]:
            call(**{field: neutral})


def test_every_field_is_either_read_or_named_as_without_effect_or_unsupported():
    used = {"model", "n", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k"}
    used |= {"min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "stream", "stream_options"}
    used |= {"route", "prompt", "messages", "logprobs", "top_logprobs", "echo", "logit_bias"}
    used |= {"presence_penalty", "frequency_penalty", "repetition_penalty"}
    used |= {"response_format", "regex", "grammar", "timeout", "priority"}

    for kind in (CompletionRequest, ChatRequest):
        assert set(kind.__struct_fields__) <= used | set(NEUTRAL) | set(NO_EFFECT)
    assert set(NO_EFFECT) <= set(GenerationRequest.__struct_fields__)


def test_log_probabilities_are_asked_for_in_two_ways():
    assert completion().n_top_logprobs is None
    assert completion(logprobs=0).n_top_logprobs == 0
    assert completion(logprobs=5).n_top_logprobs == 5
    assert chat(logprobs=False, top_logprobs=0).n_top_logprobs is None
    assert chat(logprobs=True).n_top_logprobs == 0
    assert chat(logprobs=True, top_logprobs=20).n_top_logprobs == 20

    assert refusal(completion, logprobs=21)["param"] == "logprobs"
    assert refusal(completion, logprobs=True)["param"] == "logprobs"
    assert refusal(chat, logprobs=True, top_logprobs=21)["param"] == "top_logprobs"
    assert refusal(chat, top_logprobs=1)["param"] == "top_logprobs"


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ([[]], [[]]),
        ([-1], [[-1]]),
    ],
)
def test_a_prompt_is_one_or_several_texts_or_lists_of_ids(prompt, prompts):
    assert completion(prompt=prompt).prompts() == prompts


@pytest.mark.parametrize("prompt", [[], ["a", 1], [1, [1]], ["a", ["a"]], [True], 5, {}, [1.5]])
def test_any_other_prompt_is_refused(prompt):
    def ask():
        completion(prompt=prompt).prompts()

    assert refusal(ask)["param"].startswith("prompt")


def test_messages_may_hold_parts_and_what_the_client_library_dumps():
    dumped = {"role": "assistant", "content": "b", "refusal": None, "tool_calls": None}
    dumped |= {"annotations": [], "audio": None, "function_call": None}
    parts = [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]
    developer = {"role": "developer", "content": "a"}

    request = chat(messages=[developer, dumped, {"role": "user", "content": parts}])

    assert turns(request.messages) == [
        {"role": "system", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "cd"},
    ]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user"}], "messages[0].content"),
        (
            [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}],
            "messages[0].content",
        ),
        ([{"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[0]"),
    ],
)
def test_other_messages_are_refused(messages, param):
    def ask():
        turns(chat(messages=messages).messages)

    assert refusal(ask)["param"] == param
