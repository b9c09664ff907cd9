"""The OpenAPI document against the server: whatever is generated from it, no 5xx, and answers are as it says."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
PATHS = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/health"),
    ("GET", "/ready"),
]
TIME_S = 60  # shorter limits of requests are raised to it
LONG_ANSWER = 8  # more tokens than this are cut down, so that no case writes a whole context


MESSAGES = [{"role": "user", "content": "the sea"}]
GOOD = [
    ("/v1/completions", {"prompt": "the sea", "max_tokens": 4}),
    ("/v1/completions", {"prompt": [[40], [41, 42]], "max_tokens": 3, "n": 2, "logprobs": 2}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 0, "echo": True, "logprobs": 1}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 5, "route": {"trace": True}, "stop": ["e"]}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 4}),
    (
        "/v1/chat/completions",
        {"messages": MESSAGES, "max_tokens": 4, "logprobs": True, "top_logprobs": 3, "seed": 1},
    ),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 4, "route": {"trace": True}}),
    ("/tokenize", {"messages": MESSAGES}),
    ("/detokenize", {"tokens": [40, 41]}),
]


@pytest.fixture(scope="module")
def schema(server):
    root = server.url.removesuffix("/v1")
    return schemathesis.openapi.from_url(root + "/openapi.json")


def conform(schema, method, path, examples):
    """Send generated requests and hold each answer against the document."""
    seen = []

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy())
    def check(case):
        if isinstance(case.body, dict):
            for field in ("max_tokens", "max_completion_tokens"):
                if isinstance(case.body.get(field), int):
                    case.body[field] = min(case.body[field], LONG_ANSWER)
            if "messages" in case.body and isinstance(case.body["messages"], list):
                case.body.setdefault("max_tokens", LONG_ANSWER)
            if isinstance(case.body.get("timeout"), (int, float)) and case.body["timeout"] > 0:
                # A client that gives its request no time gets a 504, and is right to.
                case.body["timeout"] = max(case.body["timeout"], TIME_S)
        response = case.call(timeout=60)
        seen.append(response.status_code)
        case.validate_response(response, checks=CHECKS)

    check()
    return seen


@pytest.mark.parametrize(("method", "path"), PATHS, ids=lambda each: each)
def test_generated_requests_get_answers_that_the_document_describes(schema, server, method, path):
    seen = conform(schema, method, path, 10)

    assert seen and max(seen) < 500
    server.empties()


@pytest.mark.parametrize(("path", "body"), GOOD, ids=str)
def test_a_good_request_gets_the_answer_that_the_document_describes(schema, path, body):
    case = schema[path]["POST"].Case(body=body, media_type="application/json")

    response = case.call(timeout=60)

    assert response.status_code == 200, response.text
    case.validate_response(response, checks=CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), PATHS, ids=lambda each: each)
def test_many_generated_requests_do_too(schema, server, method, path):
    seen = conform(schema, method, path, 300)

    assert max(seen) < 500
    server.empties()
