"""What the runtime is asked for, and what is refused before it hears of a request."""

import json

import pytest

from tokenrouter.server.admission import Limits, choice_seed, prepare
from tokenrouter.server.errors import ApiError
from tokenrouter.server.protocol import CompletionRequest, read

LIMITS = Limits(vocabulary=60, context=80)


def admit(plan, prompts=([1, 2, 3],), max_tokens=16, **fields):
    request = read(json.dumps({"prompt": "x", **fields}).encode(), CompletionRequest)
    return prepare(plan, LIMITS, request, prompts, max_tokens, "prompt")


def refused(plan, **fields):
    with pytest.raises(ApiError) as caught:
        admit(plan, **fields)
    assert caught.value.status == 400
    return caught.value.body.error


def test_the_defaults_are_openais(plan):
    work = admit(plan)

    sampling = work.jobs[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1, 1, 0, 0)
    assert (sampling.max_tokens, sampling.ignore_eos, sampling.stop_ids) == (16, False, [])
    assert work.params == {}


def test_the_context_bounds_prompt_and_output_together(plan):
    assert admit(plan, prompts=[[1] * 79], max_tokens=None).jobs[0].sampling.max_tokens == 1
    assert admit(plan, prompts=[[1] * 64]).jobs[0].sampling.max_tokens == 16
    assert admit(plan, prompts=[[1] * 80], max_tokens=0).jobs[0].sampling.max_tokens == 0

    for prompt, max_tokens in (([1] * 80, None), ([1] * 65, 16), ([1] * 81, 0), ([1], 2**70)):
        error = refused(plan, prompts=[prompt], max_tokens=max_tokens)
        assert (error.param, error.code) == ("prompt", "context_length_exceeded")


@pytest.mark.parametrize(
    "prompt", [[], [-1], [60], [2**31], [5279552648203111001], [10**30]], ids=str
)
def test_ids_that_the_tokenizer_lacks_and_empty_prompts_are_refused(plan, prompt):
    assert refused(plan, prompts=[[1], prompt]).param == "prompt"


@pytest.mark.parametrize("ids", [[-1], [60], [1, 2**40]], ids=str)
def test_stop_ids_that_the_tokenizer_lacks_are_refused(plan, ids):
    assert refused(plan, stop_token_ids=ids).param == "stop_token_ids"


@pytest.mark.parametrize(
    ("n", "prompts", "field"), [(11, 1, "n"), (6, 2, "n"), (1, 11, "prompt"), (2, 6, "n")]
)
def test_what_an_idle_server_has_no_room_for_is_refused_for_good(plan, n, prompts, field):
    limits = LIMITS._replace(active=4, waiting=6)
    request = read(json.dumps({"prompt": "x", "n": n}).encode(), CompletionRequest)

    with pytest.raises(ApiError, match=r"10 at most: 4 that run and 6 that wait") as caught:
        prepare(plan, limits, request, [[1]] * prompts, 16, "prompt")

    assert (caught.value.status, caught.value.body.error.param) == (400, field)
    prepare(plan, limits._replace(waiting=n * prompts - 4), request, [[1]] * prompts, 16, "prompt")


def test_each_choice_has_a_seed_of_its_own_that_depends_on_seed_and_choice_only(plan):
    work = admit(plan, prompts=[[1], [2]], n=3, seed=5)

    seeds = [job.sampling.seed for job in work.jobs]
    assert [job.prompt for job in work.jobs] == [[1]] * 3 + [[2]] * 3
    assert seeds[:3] == seeds[3:] == [choice_seed(5, i) for i in range(3)]
    assert len(set(seeds)) == 3 and seeds[0] == work.seed == 5


def test_a_request_without_a_seed_gets_one_that_a_double_can_hold(plan):
    seeds = {admit(plan).seed for _ in range(20)}

    assert len(seeds) == 20 and all(0 <= seed < 2**53 for seed in seeds)
    assert admit(plan, temperature=0).seed == 0
    assert admit(plan, seed=-1).seed == 2**64 - 1


def test_choice_seeds_are_64_bits_and_differ():
    seeds = {choice_seed(seed, i) for seed in (0, 1, 2**64 - 1) for i in range(128)}

    assert len(seeds) == 3 * 128 and all(0 <= seed < 2**64 for seed in seeds)


def test_a_request_sets_dials_within_their_bounds(plan):
    work = admit(plan, route={"params": {"tau": 4, "eager": False}})

    assert work.params == {"tau": 4, "eager": False}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"tau": 4.1}, "param `tau` lies in [0, 4]"),
        ({"tau": -1}, "param `tau` lies in [0, 4]"),
        ({"tau": True}, "param `tau` is a number of nats"),
        ({"eager": 1}, "param `eager` is a bool"),
        ({"tua": 1}, "the policy has no param `tua`; did you mean `tau`"),
        ({"zzz": 1}, "the policy has no param `zzz`; there are `tau`, `free` and `eager`"),
    ],
)
def test_a_dial_that_does_not_exist_or_is_out_of_bounds_is_refused(plan, params, message):
    error = refused(plan, route={"params": params})

    assert error.message == message
    assert error.param == f"route.params.{next(iter(params))}"


@pytest.mark.parametrize("sent", [{"tier": "pro"}, {"level": 2}, {"other": True}])
def test_metadata_is_passed_on(plan, sent):
    assert admit(plan, route={"metadata": sent}).metadata == sent


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"tier": 1}, "route.metadata.tier"),
        ({"level": "2"}, "route.metadata.level"),
        ({"level": True}, "route.metadata.level"),
        ({str(i): 1 for i in range(33)}, "route.metadata"),
        ({"x": "y" * 1025}, "route.metadata"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_metadata_that_a_rule_would_misread_or_that_is_too_large_is_refused(plan, sent, param):
    assert refused(plan, route={"metadata": sent}).param == param


def test_top_k_above_the_vocabulary_or_off_is_taken(plan):
    assert admit(plan, top_k=61).jobs[0].sampling.top_k == 60
    assert admit(plan, top_k=-1).jobs[0].sampling.top_k == 0
    assert admit(plan, top_k=10**30).jobs[0].sampling.top_k == 60
