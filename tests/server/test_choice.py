"""What a client asks of the choice, over HTTP through OpenAI's clients: penalties, biases, grammars, echo."""

import asyncio
import json
import re

import openai
import pydantic
import pytest

from tests.factories import EOS, tokenizer
from tests.server.serving import HANG_S, serving
from tests.server.test_http import HARD, PROMPTS, TRACED, ask, streamed
from tokenrouter.models import locate
from tokenrouter.models.tokenizer import TextTokenizer

BOUNDED = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["ship", "sea"]},
        "name": {"type": "string", "pattern": "^[a-z]{1,5}$"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["kind", "name", "n"],
    "additionalProperties": False,
}


def of_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def written(choice):
    return [token["id"] for token in choice.route["trace"]]


def test_a_bias_forces_and_forbids_ids_from_every_model(client):
    plain = ask(client, temperature=0, extra_body=TRACED).choices[0]
    forbidden = {str(id_): -100 for id_ in written(plain)}
    [wanted] = tokenizer().encode("ship").ids[:1]

    without = ask(client, temperature=1, logit_bias=forbidden, extra_body=TRACED).choices[0]
    only = ask(client, temperature=1, logit_bias={str(wanted): 100}, extra_body=TRACED).choices[0]

    assert not set(written(without)) & set(written(plain))
    assert set(written(only)) == {wanted} and len(written(only)) == 24
    assert {token["model"] for token in only.route["trace"]} == {"small", "large"}


def test_penalties_count_the_tokens_of_all_models(client):
    body = {"ignore_eos": True, **TRACED}
    given = {"temperature": 0, "max_tokens": 40, "extra_body": body}
    even = {"logit_bias": {"70": 100, "71": 100}}

    fair = ask(client, frequency_penalty=2, **even, **given).choices[0]
    once = ask(client, presence_penalty=2, logit_bias={"70": 100, "71": 99}, **given).choices[0]
    plain = ask(client, **even, **given).choices[0]

    assert {token["model"] for token in fair.route["trace"]} == {"small", "large"}
    assert set(written(fair)) == set(written(once)) == {70, 71}
    uneven = [abs(2 * written(choice).count(70) - 40) for choice in (fair, plain)]
    assert uneven[0] < uneven[1] and uneven[0] <= 12


def test_a_repetition_penalty_below_1_keeps_to_what_prompt_and_answer_hold(client):
    ids = set(tokenizer().encode(HARD).ids)
    kept = ask(client, temperature=1, extra_body={"repetition_penalty": 0.01, **TRACED}).choices[0]
    free = ask(client, temperature=1, extra_body=TRACED).choices[0]

    assert set(written(kept)) <= ids
    assert not set(written(free)) <= ids


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 1.5},
        {"frequency_penalty": -1},
        {"logit_bias": {"70": 5}},
        {"extra_body": {"repetition_penalty": 1.4}},
        {"extra_body": {"regex": "([a-z]{1,6} ){9}"}},
    ],
    ids=str,
)
def test_log_probabilities_and_signals_stay_raw_and_streams_equal_whole_answers(client, fields):
    body = {**TRACED, **fields.pop("extra_body", {})}
    given = {"temperature": 1, "max_tokens": 30, **fields, "extra_body": body}
    ids = tokenizer().encode(HARD).ids

    choice = ask(client, logprobs=0, **given).choices[0]
    text, finish, _, _ = streamed(client, **given)

    assert (text, finish) == (choice.text, choice.finish_reason)
    first = choice.route["trace"][0]
    forced = {"logit_bias": {str(first["id"]): 100}, "temperature": 0, "max_tokens": 1}
    same = ask(client, ids, extra_body=TRACED, **forced).choices[0].route["trace"][0]
    assert (same["id"], same["model"]) == (first["id"], first["model"])
    assert same["logprob"] == pytest.approx(first["logprob"])
    assert same["signals"] == pytest.approx(first["signals"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_schema_is_followed_across_hand_offs(client, seed, stream):
    given = {"model": "ping_pong", "messages": [{"role": "user", "content": HARD}]}
    given |= {"response_format": of_schema(BOUNDED), "temperature": 1, "seed": seed}

    if stream:
        chunks = list(client.chat.completions.create(max_tokens=200, stream=True, **given))
        text = "".join(chunk.choices[0].delta.content for chunk in chunks)
        finish, route = chunks[-1].choices[0].finish_reason, chunks[-1].choices[0].route
    else:
        [choice] = client.chat.completions.create(max_tokens=200, **given).choices
        text, finish, route = choice.message.content, choice.finish_reason, choice.route

    value = json.loads(text)
    assert list(value) == ["kind", "name", "n"] and value["kind"] in ("ship", "sea")
    assert re.fullmatch("[a-z]{1,5}", value["name"]) and 0 <= value["n"] <= 99
    assert finish == "stop" and min(route["tokens_by_model"].values()) > 0


def test_any_json_object_begins_as_one_and_ends_where_it_is_whole(client):
    given = {"model": "ping_pong", "messages": [{"role": "user", "content": "x"}], "max_tokens": 60}
    given |= {"temperature": 0, "response_format": {"type": "json_object"}}
    for bias in ({}, {str(tokenizer().encode("}").ids[0]): 30}):
        [choice] = client.chat.completions.create(logit_bias=bias, **given).choices

        assert choice.message.content.startswith("{")
        if bias:
            assert (choice.finish_reason, json.loads(choice.message.content)) == ("stop", {})


@pytest.mark.parametrize(
    ("field", "text", "pattern"),
    [
        ("regex", r"(yes|no)(, (yes|no)){1,3}\.", r"(yes|no)(, (yes|no)){1,3}\."),
        ("regex", "한국어 👋🏽 [a-c]{3}", "한국어 👋🏽 [a-c]{3}"),
        ("grammar", 'start: "<" body ">"\nbody: /[xy]{2,4}/', "<[xy]{2,4}>"),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1, 2])
def test_a_regex_or_grammar_is_matched_by_the_whole_answer(
    client, field, text, pattern, temperature
):
    [choice] = ask(
        client, temperature=temperature, max_tokens=100, extra_body={field: text}
    ).choices

    assert re.fullmatch(pattern, choice.text), choice.text
    assert choice.finish_reason == "stop"


def test_an_answer_under_a_grammar_may_be_cut_by_length_or_a_stop_string(client):
    body = {"regex": "abcdefgh[0-9]{20}"}

    cut = ask(client, temperature=1, max_tokens=3, extra_body=body).choices[0]
    stopped = ask(client, temperature=1, max_tokens=90, stop="fg", extra_body=body).choices[0]

    assert cut.finish_reason == "length" and "abcdefgh".startswith(cut.text)
    assert (stopped.text, stopped.finish_reason) == ("abcde", "stop")


def test_each_of_several_choices_and_prompts_follows_the_grammar(client):
    answer = ask(client, PROMPTS, n=3, temperature=2, extra_body={"regex": "[a-f]{4}"})

    assert len(answer.choices) == 12
    assert all(re.fullmatch("[a-f]{4}", choice.text) for choice in answer.choices)


class Answer(pydantic.BaseModel):
    kind: str
    n: int


def test_the_official_client_parses_what_it_asked_for(client):
    given = {"model": "ping_pong", "messages": [{"role": "user", "content": "x"}]}
    bias = {str(tokenizer().encode(c).ids[0]): 8 for c in '"},0123'}

    parsed = client.chat.completions.parse(
        response_format=Answer, temperature=0, max_tokens=200, logit_bias=bias, **given
    )

    assert isinstance(parsed.choices[0].message.parsed, Answer)


def test_a_costly_grammar_is_compiled_while_another_client_streams(server):
    hard = (
        "(" + "|".join(f"[a-{c}]{{1,{n}}}x*" for c in "bcdef" for n in range(90, 130)) + "){1,50}"
    )
    with server.stream({"prompt": "x", "max_tokens": 40, "stream": True}) as lines:
        next(lines)
        answer = server.post(
            "/v1/completions", json={"prompt": "x", "max_tokens": 2, "regex": hard}
        )
        assert answer.status_code in (200, 400), answer.text
        assert answer.json()
        assert [line for line in lines if line][-1] == "data: [DONE]"
    server.idle()


def test_a_grammar_beyond_the_limit_is_refused(server):
    answer = server.post("/v1/completions", json={"prompt": "x", "regex": "a" * 70_000})

    assert answer.status_code == 400 and answer.json()["error"]["param"] == "regex"


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"regex": "a(b"}, "regex", "`regex`: a group is not closed, at character 2 of `a(b`"),
        ({"regex": "(?=a)b"}, "regex", "look-around is not supported"),
        ({"regex": "[^\\s\\S]"}, "regex", "it allows no text"),
        ({"grammar": "start: x"}, "grammar", "`grammar`: line 1, column 8: `x` is not defined"),
        ({"grammar": "foo: /a/"}, "grammar", "the rule `start` is missing"),
        ({"regex": "a{900000}b{900000}"}, "regex", ""),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_grammar_is_said_in_one_sentence(server, body, param, says):
    answer = server.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **body})

    assert not says or answer.status_code == 400
    told = answer.json().get("error", {"param": param, "message": ""})
    assert (told["param"], says in told["message"]) == (param, True), told
    assert not re.search("state|lexer|Tokens|llguidance|error:", told["message"])


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"not": {}}, "the keyword `not` cannot be kept to"),
        ({"$ref": "#/none"}, "`$ref` names `/none`, which the schema does not hold"),
        ({"type": "strin"}, "`strin` is no type of JSON"),
        ({"type": "string", "pattern": "("}, "a group is not closed"),
        ({"minimum": 2, "maximum": 1, "type": "integer"}, "no JSON text satisfies the schema"),
        ({"x-guidance": {"lenient": True}}, "`x-guidance` in a schema is not supported"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_schema_is_said_in_one_sentence(server, schema, says):
    body = {"messages": [{"role": "user", "content": "x"}], "response_format": of_schema(schema)}

    error = server.post("/v1/chat/completions", json=body).json()["error"]

    assert error["param"] == "response_format.json_schema.schema"
    assert says in error["message"]


def test_a_grammar_that_turns_out_too_costly_on_the_way_names_its_field(server):
    hard = (
        "(" + "|".join(f"[a-{c}]{{1,{n}}}x*" for c in "bcdef" for n in range(90, 130)) + "){1,50}"
    )
    body = {"prompt": "x", "max_tokens": 200, "temperature": 1, "regex": hard}

    answers = [server.post("/v1/completions", json={**body, "seed": seed}) for seed in range(3)]

    told = [answer.json()["error"] for answer in answers if answer.status_code != 200]
    assert told, "this grammar is not too costly any more"
    for error in told:
        assert (error["type"], error["param"]) == ("invalid_request_error", "regex")
        assert error["message"].endswith(
            "it is too costly: simplify it, or lower its repetitions and lengths"
        )
    server.idle()


def test_a_tokens_log_probability_is_that_of_its_entry_among_the_likeliest(
    server, bench, plan_path
):
    body = {"messages": [{"role": "user", "content": HARD}], "max_tokens": 60, "temperature": 0}
    with serving(plan_path) as single:  # in float32, where two ways to one number differ
        answer = single.post(
            "/v1/chat/completions", json={**body, "logprobs": True, "top_logprobs": 5}
        )
    tokens = answer.json()["choices"][0]["logprobs"]["content"]

    assert len(tokens) > 20
    for token in tokens:
        entry = {key: token[key] for key in ("token", "logprob", "bytes")}
        assert token["top_logprobs"][0] == entry  # the likeliest, at temperature 0
        values = [each["logprob"] for each in token["top_logprobs"]]
        assert values == sorted(values, reverse=True)


# --- Echo


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_puts_the_prompt_in_front_and_changes_nothing_after_it(client, prompt, stream):
    plain = ask(client, prompt, temperature=1).choices[0]

    if stream:
        text = streamed(client, prompt, temperature=1, echo=True)[0]
    else:
        text = ask(client, prompt, temperature=1, echo=True).choices[0].text

    assert text == prompt + plain.text


def test_an_echoed_prompt_is_scored_by_the_model_that_begins(client, bench):
    import torch
    from transformers import AutoModelForCausalLM

    ids = tokenizer().encode(HARD).ids
    model = AutoModelForCausalLM.from_pretrained(bench / "small", dtype=torch.float64)
    with torch.inference_mode():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)

    for _ in range(2):  # with a cold prefix cache and with a warm one
        [choice] = ask(client, HARD, echo=True, max_tokens=0, logprobs=3).choices

        told = choice.logprobs
        assert (choice.text, choice.finish_reason) == (HARD, "length")
        assert told.token_logprobs[0] is told.top_logprobs[0] is None
        assert len(told.tokens) == len(ids)
        for at in range(1, len(ids)):
            want = logprobs[at - 1]
            assert told.token_logprobs[at] == pytest.approx(want[ids[at]].item(), abs=1e-6)
            likeliest = sorted(told.top_logprobs[at].values(), reverse=True)[:3]
            assert likeliest == pytest.approx(want.topk(3).values.tolist(), abs=1e-6)
            assert told.token_logprobs[at] in told.top_logprobs[at].values()


@pytest.mark.parametrize("most", [1, 24])
def test_an_echo_with_log_probabilities_tells_prompt_and_answer_in_one_row(client, most):
    plain = ask(client, temperature=1, max_tokens=most, logprobs=1).choices[0]
    n_prompt = len(tokenizer().encode(HARD).ids)

    [choice] = ask(client, temperature=1, max_tokens=most, logprobs=1, echo=True).choices
    streamed_tokens = []
    for chunk in ask(client, temperature=1, max_tokens=most, logprobs=1, echo=True, stream=True):
        streamed_tokens += chunk.choices[0].logprobs.tokens

    told = choice.logprobs
    assert streamed_tokens == told.tokens
    shown = [t for t in told.tokens[n_prompt:] if not t.startswith("<|")]
    assert shown == plain.logprobs.tokens
    assert told.text_offset[n_prompt] == len(HARD)
    assert choice.text == HARD + plain.text


def test_a_long_prompt_is_scored_over_several_chunks_in_a_crowd(client):
    ids = tokenizer().encode(" ".join(PROMPTS) * 20).ids[:1400]
    answer = ask(client, [ids, ids[:700], [70]], echo=True, max_tokens=1, logprobs=0)

    one, half, single = (choice.logprobs for choice in answer.choices)
    assert len(one.tokens) == len(ids) + 1 and None not in one.token_logprobs[1:]
    assert half.token_logprobs[1:700] == pytest.approx(one.token_logprobs[1:700])
    assert len(single.tokens) == 2 and single.token_logprobs[0] is None


def test_an_end_of_sequence_is_told_in_an_echo_so_that_tokens_can_be_counted(client):
    given = {"echo": True, "logprobs": 1, "max_tokens": 1, "logit_bias": {str(EOS): 100}}

    [choice] = ask(client, "sea", **given).choices

    assert len(choice.logprobs.tokens) == len(tokenizer().encode("sea").ids) + 1
    assert (choice.text, choice.finish_reason) == ("sea", "stop")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cut", [1, 2])
def test_an_answer_goes_on_with_the_character_that_an_echoed_prompt_ends_in(
    client, bench, stream, cut
):
    whole = "한".encode()
    spelled = TextTokenizer.load(locate(str(bench / "small"), bench)).id_to_bytes
    ids = [next(i for i in range(300) if spelled(i) == bytes([byte])) for byte in whole]
    given = {"max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 0}

    prompt = [*tokenizer().encode("sea ").ids, *ids[:cut]]
    text, tokens = "", []
    for at in range(cut, 3):
        given["logit_bias"] = {str(ids[at]): 100}
        if stream:
            told = [c.choices[0] for c in ask(client, prompt, stream=True, **given)]
            text = "".join(each.text for each in told)
            tokens = [token for each in told for token in each.logprobs.tokens]
        else:
            [choice] = ask(client, prompt, **given).choices
            text, tokens = choice.text, choice.logprobs.tokens
        assert text == ("sea 한" if at == 2 else "sea \ufffd")
        assert b"".join(map(raw, tokens)) == b"sea " + whole[: at + 1]
        prompt.append(ids[at])
    [nothing] = ask(client, prompt[:-1], echo=True, max_tokens=0, logprobs=0).choices
    assert nothing.text == "sea \ufffd"
    assert b"".join(map(raw, nothing.logprobs.tokens)) == b"sea " + whole[:2]


def raw(token):
    """Return the bytes that a text completion spells a token as."""
    if not token.startswith("bytes:"):
        return token.encode()
    return bytes(int(byte, 16) for byte in token.removeprefix("bytes:").split("\\x")[1:])


# --- The asynchronous client


def test_the_asynchronous_client_streams_parses_and_raises(server):
    async def talk():
        async with openai.AsyncOpenAI(
            base_url=server.url, api_key="x", max_retries=0, timeout=HANG_S
        ) as client:
            messages = [{"role": "user", "content": "x"}]
            given = {"model": "ping_pong", "messages": messages, "seed": 5, "temperature": 1}
            given |= {"response_format": of_schema(BOUNDED), "logprobs": True, "top_logprobs": 2}
            stream = await client.chat.completions.create(stream=True, max_tokens=200, **given)
            text = "".join([chunk.choices[0].delta.content async for chunk in stream])
            whole = await client.chat.completions.create(max_tokens=200, **given)
            with pytest.raises(openai.BadRequestError, match="regex"):
                await ask(client, extra_body={"regex": "("})
            with pytest.raises(openai.NotFoundError):
                await ask(client, model="gpt")
            echoed = await ask(client, echo=True, max_tokens=0, logprobs=1)
            return text, whole.choices[0], echoed.choices[0]

    text, whole, echoed = asyncio.run(talk())

    assert text == whole.message.content and json.loads(text)
    assert all(len(each.top_logprobs) == 2 for each in whole.logprobs.content)
    assert echoed.text == HARD
