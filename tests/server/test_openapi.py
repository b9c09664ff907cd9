"""The OpenAPI document says what each field means, and what it says is true."""

import msgspec
import pytest

from tokenrouter.server import protocol
from tokenrouter.server.fields import FIELDS
from tokenrouter.server.openapi import document
from tokenrouter.server.protocol import NEUTRAL, NO_EFFECT, read

SCHEMAS = document()["components"]["schemas"]
REQUESTS = ("CompletionRequest", "ChatRequest", "TokenizeRequest", "DetokenizeRequest")
NEEDED = {
    "CompletionRequest": {"prompt": "x"},
    "ChatRequest": {"messages": [{"role": "user", "content": "x"}]},
    "TokenizeRequest": {"prompt": "x"},
    "DetokenizeRequest": {"tokens": []},
}
BESIDE = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}
FILLED = [
    (name, field)
    for name in REQUESTS
    for field, filled in FIELDS[name].items()
    if filled.example is not None
]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_request_is_described(name):
    struct = getattr(protocol, name)
    properties = SCHEMAS[name]["properties"]

    assert set(FIELDS[name]) | set(NO_EFFECT) | set(NEUTRAL) >= set(struct.__struct_fields__)
    assert set(FIELDS[name]) <= set(struct.__struct_fields__)
    assert set(properties) == set(struct.__struct_fields__)
    assert all(schema["description"].endswith(".") for schema in properties.values())


@pytest.mark.parametrize(("name", "field"), FILLED, ids=str)
def test_an_example_is_what_the_server_takes(name, field):
    example = FIELDS[name][field].example
    body = {**NEEDED[name], **BESIDE.get(field, {}), field: example}
    if name == "TokenizeRequest" and field == "messages":
        del body["prompt"]

    request = read(msgspec.json.encode(body), getattr(protocol, name))

    assert getattr(request, field) is not None
    assert SCHEMAS[name]["properties"][field]["examples"] == [example]


@pytest.mark.parametrize("name", ["CompletionRequest", "ChatRequest"])
def test_what_is_left_out_is_what_its_default_would_be(server, name):
    path = "/v1/completions" if name == "CompletionRequest" else "/v1/chat/completions"
    needed = {**NEEDED[name], "seed": 3, "max_completion_tokens": 16}
    if name == "CompletionRequest":
        del needed["max_completion_tokens"]
    fields = {f: schema.get("default") for f, schema in SCHEMAS[name]["properties"].items()}
    explicit = {f: value for f, value in fields.items() if value is not None}

    left_out = server.post(path, json=needed)
    spelled = server.post(path, json={**explicit, "logprobs": None, "top_logprobs": None, **needed}
                          if name == "ChatRequest" else {**explicit, **needed})  # fmt: skip

    assert left_out.status_code == spelled.status_code == 200, spelled.text
    one, other = left_out.json(), spelled.json()
    assert one["choices"] == other["choices"] and one["usage"] == other["usage"]
    assert len(explicit) >= 12


def test_every_status_that_a_post_may_have_is_told():
    for path, takes in document()["paths"].items():
        for method, operation in takes.items():
            told = set(operation["responses"])
            assert "405" in told, path
            assert method == "get" or {"400", "401", "404", "408", "413"} <= told, path
