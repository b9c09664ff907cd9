"""Where ranks are placed and what fits: numbers alone, no GPU is asked."""

import msgspec
import pytest

from tests.runtime import toy
from tokenrouter.runtime.placing import SHARE, NoRoom, capacity, in_turns, places, with_budget

GIB = 1 << 30


def plan(*models, page_size=16, max_active=64):
    """A plan of models given as (weights in GiB, KV bytes a token, ranks, GPUs)."""
    made = toy.ping_pong()
    blank = msgspec.structs.replace(made.models[0], dtype="bfloat16", context=1 << 20)
    declared = [
        msgspec.structs.replace(
            blank,
            name=f"m{at}",
            weight_bytes=int(weights * GIB),
            kv_bytes_per_token=kv,
            tensor_parallel=ranks,
            gpus=gpus,
        )
        for at, (weights, kv, ranks, gpus) in enumerate(models)
    ]
    memory = msgspec.structs.replace(made.memory, page_size=page_size)
    windows = msgspec.structs.replace(made.windows, max_active=max_active)
    return msgspec.structs.replace(made, models=declared, memory=memory, windows=windows)


@pytest.mark.parametrize(
    ("ranks", "gpus", "expected"),
    [
        ([1, 1], 1, [[0], [0]]),
        ([1, 1], 2, [[0], [1]]),
        ([1, 2], 4, [[0], [1, 2]]),
        ([1, 2], 2, [[0], [1, 0]]),
        ([2, 1, 1], 3, [[0, 1], [2], [0]]),
    ],
)
def test_each_rank_has_a_gpu_of_its_own_as_long_as_there_are_some(ranks, gpus, expected):
    assert places(plan(*((1, 1, n, []) for n in ranks)), gpus) == expected


def test_a_plans_own_gpus_win():
    assert places(plan((1, 1, 1, [3]), (1, 1, 2, [0, 2])), 4) == [[3], [0, 2]]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (([0], []), [[0], [1]]),
        (([], [0]), [[1], [0]]),
        (([1], []), [[1], [0]]),
        (([], [1]), [[0], [1]]),
    ],
)
def test_a_model_whose_gpu_is_not_named_has_one_that_no_other_is_named_for(own, expected):
    assert places(plan(*((1, 1, 1, gpus) for gpus in own)), 2) == expected


@pytest.mark.parametrize(
    ("model", "gpus", "message"),
    [
        ((1, 1, 1, []), 0, "no GPU is there; serve with --device cpu"),
        ((1, 1, 2, []), 1, "`m0` asks for 2 ranks, each on a GPU of its own, and there are 1"),
        ((1, 1, 2, [0, 0]), 2, "`m0` is to run on GPUs [0, 0]: 2 of the 2 that are there"),
        ((1, 1, 1, [2]), 2, "`m0` is to run on GPUs [2]: 1 of the 2 that are there"),
    ],
)
def test_gpus_that_are_not_there_are_told_in_one_line(model, gpus, message):
    with pytest.raises(NoRoom) as told:
        places(plan(model), gpus)

    assert message in str(told.value)


def test_models_that_share_a_gpu_share_what_the_weights_leave():
    shared = plan((1, 100_000, 1, []), (60, 400_000, 1, []))

    tokens = capacity(shared, [[0], [0]], [80 * GIB])

    assert tokens == int((SHARE * 80 * GIB - 61 * GIB) / 500_000) // 16 * 16


def test_the_fullest_gpu_bounds_all_pools():
    apart = plan((1, 100_000, 1, []), (60, 400_000, 1, []))

    tokens = capacity(apart, [[0], [1]], [80 * GIB, 70 * GIB])

    assert tokens == int((SHARE * 70 * GIB - 60 * GIB) / 400_000) // 16 * 16


def test_ranks_part_weights_and_pages():
    shared = plan((60, 400_000, 2, []))

    tokens = capacity(shared, [[0, 1]], [40 * GIB, 50 * GIB])

    assert tokens == int((SHARE * 40 * GIB - 30 * GIB) / 200_000) // 16 * 16


def test_another_dtype_weighs_otherwise():
    one = plan((10, 100_000, 1, []))

    tokens = capacity(one, [[0]], [80 * GIB], "float32")

    assert tokens == int((SHARE * 80 * GIB - 20 * GIB) / 200_000) // 16 * 16


def test_no_pool_is_larger_than_all_requests_at_their_longest():
    small = plan((1, 16, 1, []), max_active=2)
    short = [msgspec.structs.replace(m, context=1000) for m in small.models]

    assert capacity(msgspec.structs.replace(small, models=short), [[0]], [80 * GIB]) == 2000


def test_weights_that_leave_no_room_are_told_in_one_line():
    with pytest.raises(NoRoom) as told:
        capacity(plan((1, 1000, 1, []), (80, 1000, 1, [])), [[0], [0]], [80 * GIB])

    assert str(told.value).startswith(
        "GPU 0 has 80.0 GiB free and `m0` and `m1` weigh 81.0 GiB: no room for KV pages"
    )


def test_the_plan_that_is_served_has_the_pools_that_fit():
    made = with_budget(plan((1, 100_000, 1, [])), [[0]], [2 * GIB])

    assert made.memory.capacity_tokens == capacity(plan((1, 100_000, 1, [])), [[0]], [2 * GIB])
    assert made.memory.budget_bytes == made.memory.capacity_tokens * 100_000


def test_models_on_one_gpu_are_told_to_take_turns_unless_a_service_lets_them_share(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    three = plan((1, 1, 1, []), (1, 1, 1, []), (1, 1, 1, []))

    assert in_turns(three, [[0], [1], [2]]) is None
    told = in_turns(three, [[0], [1], [1]])
    assert told is not None and told.startswith("`m1` and `m2` share GPU 1 and no Multi-Process")

    (tmp_path / "control").touch()
    assert in_turns(three, [[0], [1], [1]]) is None
