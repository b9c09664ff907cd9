"""The OpenAI surface over HTTP, through OpenAI's own client: two tiny models with hand-offs every few tokens."""

import asyncio
import itertools
import json
import math

import httpx
import openai
import pytest

from tests.server.serving import wait_until

HARD = "Repeat exactly ten times: 客单价 ď 👋🏽 한국어"
PROMPTS = [HARD, "Tell me a story about the sea.", "1 2 3 5 8", "def area("]
TRACED = {"route": {"trace": True}}


def ask(client, prompt=HARD, **fields):
    given = {"model": "ping_pong", "max_tokens": 24, "seed": 7} | fields
    return client.completions.create(prompt=prompt, **given)


def streamed(client, prompt=HARD, **fields):
    """Return the joined text, the finish reason, the route report and the usage of a stream."""
    text, finish, route, usage = "", None, None, None
    options = {"include_usage": True}
    for chunk in ask(client, prompt, stream=True, stream_options=options, **fields):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert finish is None, "a chunk came after the finish reason"
            text += choice.text
            finish = choice.finish_reason
            route = choice.route if finish else route
    return text, finish, route, usage


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("temperature", [0, 1, 100])
def test_a_stream_joins_to_the_unstreamed_answer(client, prompt, temperature):
    whole = ask(client, prompt, temperature=temperature)

    text, finish, route, usage = streamed(client, prompt, temperature=temperature)

    [choice] = whole.choices
    assert (text, finish, route) == (choice.text, choice.finish_reason, choice.route)
    assert usage == whole.usage


def test_at_every_cut_the_stream_joins_to_the_unstreamed_answer(client):
    longest = ask(client, temperature=1, max_tokens=40).choices[0].text

    for most in range(1, 40):
        text = ask(client, temperature=1, max_tokens=most).choices[0].text

        assert streamed(client, temperature=1, max_tokens=most)[0] == text
        assert longest.startswith(text.rstrip("\ufffd"))


def test_both_models_write_and_each_token_says_which(client):
    answer = ask(client, temperature=1, max_tokens=40, extra_body=TRACED)

    [choice] = answer.choices
    details = answer.usage.completion_tokens_details.tokens_by_model
    trace = choice.route["trace"]
    assert set(details) == {"small", "large"} and min(details.values()) > 0
    assert details == choice.route["tokens_by_model"]
    assert sum(details.values()) == answer.usage.completion_tokens == len(trace)
    assert {name: sum(t["model"] == name for t in trace) for name in details} == details
    assert "".join(token["text"] for token in trace) == choice.text
    assert sum(rule["tokens"] for rule in choice.route["tokens_by_rule"]) == len(trace)
    assert all(rule["line"] for rule in choice.route["tokens_by_rule"])
    assert choice.route["handoffs"] > 0
    small = [token for token in trace if token["model"] == "small"]
    assert all(token["signals"] for token in small)


def test_the_tokens_of_a_traced_stream_join_to_its_text(client):
    text, traced = "", ""
    for chunk in ask(client, temperature=1, stream=True, extra_body=TRACED):
        text += chunk.choices[0].text
        traced += "".join(token["text"] for token in chunk.choices[0].route["trace"])

    assert traced == text != ""


def test_a_dial_moves_the_tokens_from_one_model_to_the_other(client):
    for tau, owner in ((0, "large"), (10, "small")):
        body = {"route": {"params": {"tau": tau}}}

        details = ask(client, temperature=1, extra_body=body).usage.completion_tokens_details

        assert details.tokens_by_model[owner] == sum(details.tokens_by_model.values()) > 0


def test_a_dial_that_is_out_of_bounds_is_refused(client):
    with pytest.raises(openai.BadRequestError, match=r"`tau` lies in \[0, 10\]"):
        ask(client, extra_body={"route": {"params": {"tau": 11}}})


def across_a_handoff(trace):
    """Return a stop string that begins in one model's token and ends in another's, and the tokens needed for it."""
    texts = [token["text"] for token in trace]
    for a, b in itertools.pairwise(trace):
        if a["model"] != b["model"] and a["text"].strip("\ufffd") and b["text"].strip("\ufffd"):
            stop = a["text"][-1] + b["text"][0]
            return stop, next(n for n in range(1, len(texts)) if stop in "".join(texts[:n]))
    raise AssertionError("no hand-off between two tokens with text")


def test_a_stop_string_across_a_handoff_ends_the_text_and_is_counted_but_not_shown(client):
    whole = ask(client, temperature=1, max_tokens=60, extra_body=TRACED).choices[0]
    stop, needed = across_a_handoff(whole.route["trace"])

    answer = ask(client, temperature=1, max_tokens=60, stop=[stop, "never seen"])
    text, finish, _, usage = streamed(client, temperature=1, max_tokens=60, stop=stop)

    shown = whole.text.partition(stop)[0]
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (shown, "stop")
    assert (text, finish) == (shown, "stop")
    assert answer.usage.completion_tokens == usage.completion_tokens == needed


def test_a_stop_string_that_ends_the_text_at_max_tokens_is_a_stop(client):
    whole = ask(client, temperature=1, max_tokens=60, extra_body=TRACED).choices[0]
    stop, needed = across_a_handoff(whole.route["trace"])
    texts = [token["text"] for token in whole.route["trace"]]

    exact = ask(client, temperature=1, max_tokens=needed, stop=stop).choices[0]
    before = ask(client, temperature=1, max_tokens=needed - 1, stop=stop).choices[0]

    assert (exact.text, exact.finish_reason) == (whole.text.partition(stop)[0], "stop")
    assert (before.text, before.finish_reason) == ("".join(texts[: needed - 1]), "length")


def test_each_choice_comes_out_the_same_when_it_is_asked_for_alone(client):
    answer = ask(client, temperature=1, n=4)

    seeds = [choice.route["seed"] for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in answer.choices}) > 1
    assert answer.seed == seeds[0] == 7
    for seed, choice in zip(seeds, answer.choices, strict=True):
        assert ask(client, temperature=1, seed=seed).choices[0].text == choice.text


def test_streamed_choices_are_told_apart_by_their_index(client):
    texts = ["", "", ""]
    for chunk in ask(client, temperature=1, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text

    assert texts == [choice.text for choice in ask(client, temperature=1, n=3).choices]


def test_several_prompts_are_answered_as_if_each_were_alone(client):
    answer = ask(client, PROMPTS, temperature=1, n=2)

    texts = [choice.text for choice in answer.choices]
    alone = [ask(client, prompt, temperature=1, n=2) for prompt in PROMPTS]
    assert texts == [choice.text for one in alone for choice in one.choices]
    assert answer.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)


def test_token_ids_are_a_prompt_too(client):
    ids = [40, 41, 42, 43]

    one = ask(client, ids)
    two = ask(client, [ids, ids])

    assert one.usage.prompt_tokens == 4
    assert [choice.text for choice in two.choices] == [one.choices[0].text] * 2


def test_a_request_without_a_seed_is_told_its_seed_and_can_be_repeated(client):
    first = client.completions.create(model="ping_pong", prompt=HARD, max_tokens=24)

    again = ask(client, temperature=1, seed=first.seed)

    assert again.choices[0].text == first.choices[0].text


def test_no_company_changes_a_seeded_answer(server):
    async def crowd():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            alone = await ask(client, temperature=1)
            mixed = [
                ask(client, PROMPTS[i % 4], temperature=1, seed=7 if i % 4 == 0 else None)
                for i in range(16)
            ]
            together = await asyncio.gather(*mixed)
            return alone.choices[0].text, [one.choices[0].text for one in together[::4]]

    alone, together = asyncio.run(crowd())

    assert together == [alone] * 4


def test_a_chat_streams_what_it_answers(client):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": HARD}]},
    ]
    given = {"model": "ping_pong", "messages": messages, "temperature": 1, "seed": 3}

    whole = client.chat.completions.create(max_completion_tokens=20, **given)
    chunks = list(client.chat.completions.create(max_tokens=20, stream=True, **given))

    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content for delta in deltas) == whole.choices[0].message.content
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_what_a_chat_answers_can_be_sent_back(client):
    messages = [{"role": "user", "content": "hi"}]
    given = {"model": "ping_pong", "max_tokens": 8}
    first = client.chat.completions.create(messages=messages, **given)

    messages += [first.choices[0].message.model_dump(), {"role": "user", "content": "and?"}]
    second = client.chat.completions.create(messages=messages, **given)

    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_max_tokens_is_exact_where_the_end_of_sequence_is_ignored(client):
    body = {"ignore_eos": True}

    answer = ask(client, temperature=2, max_tokens=200, extra_body=body)

    assert answer.usage.completion_tokens == 200
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_no_tokens_may_be_asked_for(client, stream):
    if stream:
        text, finish, _, usage = streamed(client, max_tokens=0)
    else:
        answer = ask(client, max_tokens=0)
        text, finish = answer.choices[0].text, answer.choices[0].finish_reason
        usage = answer.usage

    assert (text, finish, usage.completion_tokens) == ("", "length", 0)


def test_a_stop_id_ends_the_answer(client):
    trace = ask(client, extra_body=TRACED).choices[0].route["trace"]
    ids = [token["id"] for token in trace]

    answer = ask(client, extra_body={"stop_token_ids": [ids[5]], **TRACED})

    [choice] = answer.choices
    assert choice.finish_reason == "stop"
    assert [token["id"] for token in choice.route["trace"]] == ids[: ids.index(ids[5]) + 1]


def test_events_are_well_formed(server):
    body = {"prompt": "x", "max_tokens": 3, "stream": True}
    answer = server.post("/v1/completions", json=body)

    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-1] == "" and events[-2] == "data: [DONE]"
    for event in events[:-2]:
        assert event.startswith("data: ") and "\n" not in event
        assert json.loads(event.removeprefix("data: "))["object"] == "text_completion"


def test_the_policy_is_listed_with_its_models_and_dials(client):
    [card] = client.models.list().data

    assert card.id == "ping_pong"
    assert card.route["models"] == ["small", "large"]
    assert card.route["params"][0]["name"] == "tau"
    assert client.models.retrieve("ping_pong").id == "ping_pong"
    assert card.context <= 8192


def test_health_and_readiness_are_told(server):
    ready = server.get("/ready")

    assert server.get("/health").status_code == 200
    assert ready.status_code == 200
    assert ready.json()["status"] == "ready"
    assert ready.json()["models"] == {"small": True, "large": True}


@pytest.mark.parametrize("most", [None, 3])
def test_a_chat_tells_bytes_and_log_probabilities_that_belong_to_its_text(client, most):
    given = {"model": "ping_pong", "messages": [{"role": "user", "content": HARD}], "seed": 3}
    given |= {"max_tokens": 40, "temperature": 1, "logprobs": True, "top_logprobs": most}

    [choice] = client.chat.completions.create(**given).choices
    told = []
    for chunk in client.chat.completions.create(stream=True, **given):
        told += chunk.choices[0].logprobs.content

    content = choice.logprobs.content
    assert told == content
    raw = b"".join(bytes(token.bytes) for token in content)
    assert raw.decode("utf-8", "replace") == choice.message.content
    assert all(token.logprob <= 0 and len(token.top_logprobs) == (most or 0) for token in content)


def test_the_likeliest_tokens_come_best_first_and_hold_what_a_greedy_model_wrote(client):
    given = {"model": "ping_pong", "messages": [{"role": "user", "content": HARD}]}
    given |= {"max_tokens": 40, "temperature": 0, "logprobs": True, "top_logprobs": 20}

    [choice] = client.chat.completions.create(**given).choices

    for token in choice.logprobs.content:
        values = [each.logprob for each in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert sum(math.exp(value) for value in values) <= 1 + 1e-9
        assert token.logprob == pytest.approx(values[0])
        assert token.bytes == token.top_logprobs[0].bytes


@pytest.mark.parametrize("most", [0, 2])
def test_a_text_completion_tells_where_in_its_text_each_token_stands(client, most):
    given = {"temperature": 1, "max_tokens": 40, "logprobs": most, "extra_body": TRACED}

    [choice] = ask(client, **given).choices

    trace = [t for t in choice.route["trace"] if t["text"]]
    told = choice.logprobs
    offsets = dict(zip(told.text_offset, told.tokens, strict=True))
    at = 0
    for token in trace:
        assert at in offsets
        at += len(token["text"])
    assert len(told.tokens) == len(told.token_logprobs) == len(told.text_offset)
    if most:
        for token, logprob, top in zip(
            told.tokens, told.token_logprobs, told.top_logprobs, strict=True
        ):
            assert top[token] == pytest.approx(logprob) and most <= len(top) <= most + 1
    else:
        assert told.top_logprobs is None


def test_log_probabilities_in_a_crowd_are_those_of_each_request_alone(server):
    async def crowd():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            alone = [await ask(client, p, temperature=1, logprobs=2) for p in PROMPTS]
            told = [ask(client, p, temperature=1, logprobs=2) for p in PROMPTS]
            silent = [ask(client, p, temperature=1) for p in PROMPTS]
            together = await asyncio.gather(*told, *silent)
            return alone, together[:4], together[4:]

    alone, told, silent = asyncio.run(crowd())

    assert all(one.choices[0].logprobs is None for one in silent)
    for one, other in zip(told, alone, strict=True):
        mine, theirs = one.choices[0].logprobs, other.choices[0].logprobs
        assert mine.tokens == theirs.tokens
        assert mine.token_logprobs == pytest.approx(theirs.token_logprobs)
        for top, wanted in zip(mine.top_logprobs, theirs.top_logprobs, strict=True):
            assert top == pytest.approx(wanted)


@pytest.mark.parametrize("text", PROMPTS)
def test_ids_go_back_to_the_text_that_they_came_from(server, text):
    told = server.post("/tokenize", json={"prompt": text}).json()

    back = server.post("/detokenize", json={"tokens": told["tokens"]}).json()

    assert back == {"prompt": text}
    assert told["count"] == len(told["tokens"]) > 0
    assert told["max_model_len"] > 4000


def test_tokens_are_told_as_texts_and_without_what_the_tokenizer_or_the_template_adds(server):
    def told(**body):
        return server.post("/tokenize", json=body).json()

    turns = [{"role": "user", "content": "The sea"}]
    plain, bare = told(prompt="The sea"), told(prompt="The sea", add_special_tokens=False)
    asked, closed = (told(messages=turns, add_generation_prompt=b) for b in (True, False))

    assert plain["token_strs"] is None
    assert plain["tokens"][-bare["count"] :] == bare["tokens"]
    assert told(prompt="The sea", return_token_strs=True)["token_strs"] == [
        server.post("/detokenize", json={"tokens": [id_]}).json()["prompt"]
        for id_ in plain["tokens"]
    ]
    assert asked["tokens"][: closed["count"]] == closed["tokens"]
    assert asked["count"] > closed["count"] and asked == told(messages=turns)
    refusal = server.post("/tokenize", json={"prompt": "x", "add_generation_prompt": True})
    assert refusal.json()["error"]["param"] == "add_generation_prompt"


def test_a_chat_is_tokenized_as_it_would_be_sent(server, client):
    messages = [{"role": "user", "content": HARD}]

    told = server.post("/tokenize", json={"messages": messages}).json()
    answer = client.chat.completions.create(model="ping_pong", messages=messages, max_tokens=1)

    assert told["count"] == answer.usage.prompt_tokens


def long_body(**fields):
    return {"prompt": "x", "max_tokens": 6000, "ignore_eos": True, "temperature": 1, **fields}


def test_a_client_that_leaves_its_stream_ends_its_request(server):
    with server.stream(long_body(stream=True, n=4)) as lines:
        for _ in range(3):
            next(lines)
        assert server.get("/ready").json()["running"] == 4

    server.idle()


def test_a_client_that_does_not_wait_for_its_answer_ends_its_request(server):
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(server.url + "/completions", json=long_body(), timeout=1)

    server.idle()


def test_a_stop_string_ends_the_request_in_the_runtime_too(client, server):
    text = ask(client, temperature=1).choices[0].text

    ask(client, temperature=1, max_tokens=6000, stop=text[:1], extra_body={"ignore_eos": True})

    server.idle()


def test_a_choice_that_a_stop_string_ends_does_not_run_on_beside_the_others(client, server):
    body = {"ignore_eos": True}
    texts = [c.text for c in ask(client, temperature=1, n=2, extra_body=body).choices]
    stop = next(texts[0][at : at + 6] for at in range(18) if texts[0][at : at + 6] not in texts[1])

    given = {"n": 2, "stop": stop, "max_tokens": 6000, "stream": True}
    with ask(client, temperature=1, extra_body=body, **given) as chunks:
        ends = (c for chunk in chunks for c in chunk.choices if c.finish_reason)
        assert next(ends).index == 0
        wait_until(lambda: server.get("/ready").json()["running"] == 1)

    server.idle()
