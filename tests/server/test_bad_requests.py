"""Requests that broke other servers: each gets a 4xx whose body is valid JSON, and the server goes on."""

import json

import pytest

from tests.factories import vocabulary_size

JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def goes_on(server):
    """After whatever a test sent, the next request is answered."""
    yield
    answer = server.post("/v1/completions", json={"prompt": "x", "max_tokens": 1})
    assert answer.status_code == 200, answer.text


def refused(answer, status=400):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["message"] and "\n" not in error["message"]
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize(
    "body",
    [
        '{"model":"m", x}',
        "[]",
        "null",
        "5",
        "",
        '{"prompt": "x", "messages": [], "temperature": NaN}',
        '{"prompt": "\\ud83d"}',
        '{"prompt": ' + "[" * 9999,
    ],
    ids=lambda body: body[:12],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_body_that_is_no_request(server, path, body):
    refused(server.post(path, content=body, headers=JSON))


@pytest.mark.parametrize(
    "fields",
    [
        '"top_p": 1e400',
        '"temperature": -0.1',
        '"top_p": 0',
        '"top_p": -0.1',
        '"top_k": -2',
        '"n": 1000000',
        '"logprobs": 21',
        '"logit_bias": {"191222": -100}',
        '"stop_token_ids": [5279552648203111001]',
        '"stop_token_ids": [-1]',
        '"prompt": [5279552648203111001]',
        '"prompt": [-1]',
        '"prompt": [[]]',
        '"prompt": [2147483648]',
        '"prompt": [""]',
        '"prompt": []',
        '"prompt": ""',
        '"temprature": 1',
        '"max_tokens": 100000',
        '"max_tokens": 99999999999999999999999',
        '"route": {"params": {"tua": 1}}',
        '"logit_bias": {"-1": 1}',
        '"logit_bias": {"x": 1}',
        '"logit_bias": {"5": 1e400}',
        '"logit_bias": {"5": 101}',
        '"logit_bias": [5]',
        '"presence_penalty": 2.1',
        '"repetition_penalty": 0',
        '"repetition_penalty": 1e400',
        '"response_format": {"type": "xml"}',
        '"response_format": {"type": "json_schema"}',
        '"response_format": {"type": "json_object", "json_schema": {}}',
        '"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}',
        '"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://x/y"}}}',
        '"response_format": {"type": "json_schema", "json_schema": {"schema": {"pattern": "(?=x)"}}}',
        '"regex": "(ab"',
        '"regex": ""',
        '"regex": "(?=x)x"',
        '"grammar": "start: missing"',
        '"grammar": "begin: /x/"',
        '"ignore_eos": true, "regex": "ab"',
        '"grammar": "start: /x/", "regex": "ab"',
        '"echo": 1',
    ],
)
def test_a_field_that_cannot_be_served(server, fields):
    name = fields.split('"')[1]
    prompt = "" if name == "prompt" else '"prompt": "x", '
    body = "{" + prompt + fields + "}"

    error = refused(server.post("/v1/completions", content=body, headers=JSON))

    assert error["param"] and error["param"].startswith((name, "prompt", "regex")), error


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1e-8},
        {"temperature": 100},
        {"temperature": 1, "top_p": 1e-9},
        {"temperature": 1, "top_p": 0.9999999},
        {"temperature": 1, "top_k": 10**9},
        {"temperature": 1, "top_k": 1},
        {"temperature": 1, "top_k": vocabulary_size()},
        {"temperature": 1, "top_k": vocabulary_size() + 1},
        {"temperature": 1, "top_p": 1},
        {"temperature": 1, "min_p": 1},
        {"seed": 2**64 - 1, "temperature": 1},
        {"seed": -1, "temperature": 1},
        {"max_tokens": None},
    ],
    ids=str,
)
def test_a_value_at_the_edge_is_answered(server, fields):
    answer = server.post("/v1/completions", json={"prompt": "x", "max_tokens": 4, **fields})

    assert answer.status_code == 200, answer.text
    json.loads(answer.text)


def test_half_a_million_stop_strings_are_refused_while_another_client_streams(server):
    with server.stream({"prompt": "x", "max_tokens": 50, "stream": True}) as lines:
        next(lines)
        body = {"prompt": "x", "stop": ["ab"] * 500_000}
        assert refused(server.post("/v1/completions", json=body))["param"] == "stop"
        assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_body_beyond_the_limit_is_refused_with_and_without_its_length(server):
    def parts():
        for _ in range(50):
            yield b"x" * 100_000

    refused(server.post("/v1/completions", content=b"x" * 5_000_000, headers=JSON), 413)
    refused(server.post("/v1/completions", content=parts(), headers=JSON), 413)


def test_a_form_is_no_request(server):
    refused(server.post("/v1/completions", data={"prompt": "x"}))


def test_a_prompt_longer_than_the_context_is_refused_and_named_so(server):
    error = refused(server.post("/v1/completions", json={"prompt": "sea " * 20_000}))

    assert error["code"] == "context_length_exceeded"


def test_an_unknown_model_path_or_method(server):
    assert (
        refused(server.post("/v1/completions", json={"prompt": "x", "model": "gpt"}), 404)["code"]
        == "model_not_found"
    )
    refused(server.get("/v1/models/gpt"), 404)
    refused(server.get("/v2"), 404)
    refused(server.get("/v1/completions"), 405)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "x", "messages": []}),
        ("/tokenize", {"messages": []}),
        ("/tokenize", {"prompt": 5}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [2**40]}),
        ("/detokenize", {"tokens": "x"}),
    ],
    ids=str,
)
def test_what_cannot_be_tokenized(server, path, body):
    refused(server.post(path, json=body))
