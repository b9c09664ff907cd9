"""`trc simulate`: right where the solvers can tell, and honest where it is an open system."""

import json
import random
import xml.etree.ElementTree as ET

import msgspec
import numpy as np
import pytest

from tests.compiler.irs import COMMIT, ENTROPY, STOP, automaton, cmp, r_stitch, then
from tests.compiler.plans import plan_of
from tests.plan.conftest import plan as plan_fixture
from tests.profile.profiles import profile_of
from tests.throughput.specs import pair, random_spec
from tokenrouter import cli
from tokenrouter.plan.hash import seal
from tokenrouter.plan.io import named, write
from tokenrouter.plan.structs import System
from tokenrouter.profile.io import write as write_profile
from tokenrouter.profile.system import of_profile
from tokenrouter.simulate.arrivals import Arrival, TraceError, poisson, read
from tokenrouter.simulate.events import Simulation
from tokenrouter.simulate.landscape import landscape
from tokenrouter.simulate.outcome import closed_run, open_run
from tokenrouter.simulate.plot import heat_map
from tokenrouter.simulate.prompts import Prompts
from tokenrouter.simulate.setup import prepare
from tokenrouter.simulate.ways import First, Stops, ways_of
from tokenrouter.throughput import exact
from tokenrouter.throughput.candidates import every
from tokenrouter.throughput.spec import BusyRates, Spec
from tokenrouter.throughput.system import build

plan = plan_fixture
NEVER = 1e12
SURE = 4.5  # standard errors


def closed(spec, windows, *, seed=0, tokens=12000, max_wait_ms=NEVER):
    table = [[window] * spec.n for window in windows]
    simulation = Simulation(spec, table, max_wait_ms, spec.n, seed=seed)
    return closed_run(simulation, spec.n, tokens, [f"m{at}" for at in range(len(windows))])


# Seeds 12 and 17 commit so seldom that a run long enough takes ten seconds.
@pytest.mark.parametrize("seed", [s for s in range(20) if s not in (12, 17)])
def test_the_closed_system_is_what_the_exact_solver_says(seed):
    same_as_solved(random_spec(seed), seed)


@pytest.mark.parametrize("seed", range(300, 315))
def test_the_closed_system_in_turn_is_what_the_exact_solver_says(seed):
    same_as_solved(random_spec(seed, in_turn=True), seed)


def same_as_solved(spec, seed):
    solved = exact.solve(build(spec), spec.windows)

    seen = closed(spec, spec.windows, seed=seed)

    # Where busy models slow each other the solver rounds to quanta; a fixed rhythm has no error but its ends.
    rounding = 0.01 if spec.busy else 0.001
    off = abs(seen.tokens_per_s - solved.tokens_per_s)
    assert off < SURE * seen.stderr + rounding * solved.tokens_per_s
    for model, told in zip(seen.models, solved.per_model, strict=True):
        assert model.utilisation == pytest.approx(told.utilisation, abs=0.03)
        assert model.mean_batch == pytest.approx(told.mean_batch, rel=0.06)
        if model.admission_delay is not None:
            delay = told.admission_delay_ms
            assert model.admission_delay.mean == pytest.approx(delay, rel=0.12, abs=0.2)


@pytest.mark.parametrize(("windows", "tokens_per_s"), [([1, 1], 142.3), ([1, 2], 158.1)])
def test_the_published_values_come_out(windows, tokens_per_s):
    seen = closed(pair(3), windows)

    assert abs(seen.tokens_per_s - tokens_per_s) < SURE * seen.stderr
    assert seen.stderr < 0.02 * tokens_per_s


@pytest.mark.parametrize("windows", [(2, 4), (3, 3), (9, 9)], ids=str)
def test_infeasible_windows_go_on_by_the_gates_other_rules(windows):
    seen = closed(pair(3), windows, tokens=500)

    assert seen.tokens_per_s > 0
    assert sum(model.launches.get("nothing_else", 0) for model in seen.models) > 0


def test_nobody_waits_much_longer_than_max_wait_while_the_model_is_idle():
    spec = pair(8)
    kinder = closed(spec, (1, 7), tokens=3000, max_wait_ms=5.0)
    stern = closed(spec, (1, 7), tokens=3000)

    assert kinder.models[1].launches["max_wait"] > 0
    # A request may wait for the end of a step, and then max_wait from its arrival is over already.
    assert kinder.models[1].admission_delay.p99 <= 27.9 + 5.0
    assert stern.models[1].launches.get("max_wait", 0) == 0
    assert kinder.models[1].admission_delay.p99 < stern.models[1].admission_delay.p99


def one_model(step=10.0, tokens=20.0, n=4):
    return Spec(n=n, step_ms=[[step] * n], p=[[1.0]], c=[[1.0]], mean_output_tokens=tokens)


def test_a_lone_request_takes_its_steps_and_no_more():
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 4)

    seen = open_run(simulation, [Arrival(100.0, 7)], ["only"])

    assert seen.latency.mean == pytest.approx(70.0)
    assert seen.first_token.mean == pytest.approx(10.0)
    assert seen.speed == pytest.approx(100.0)
    assert seen.seconds == pytest.approx(0.170)


def there_and_back(first, second, **fields):
    """A step at each of two models in turn, a token each."""
    return Spec(
        n=4,
        step_ms=[[first] * 4, [second] * 4],
        p=[[0.0, 1.0], [1.0, 0.0]],
        c=[[0.0, 1.0], [1.0, 0.0]],
        mean_output_tokens=2.0,
        **fields,
    )


def test_work_goes_on_at_the_rate_of_those_that_are_busy_with_it():
    busy = [BusyRates(models=[0, 1], rates=[0.5, 0.25])]
    simulation = Simulation(there_and_back(10.0, 30.0, busy=busy), [[1] * 4] * 2, NEVER, 4)

    open_run(simulation, [Arrival(0.0, 2), Arrival(10.0, 2)], ["first", "second"])

    # Alone until 10. Both until 30: 20 ms at half speed, in which the second model does 5 of its 30. Alone again.
    assert [(r.first, r.last) for r in simulation.done] == [(10.0, 55.0), (30.0, 85.0)]


def test_models_in_turn_work_one_at_a_time_and_take_who_came_while_they_stood_in_line():
    spec = there_and_back(10.0, 30.0, in_turn=True, after_ms=[[14.0] * 4, [33.0] * 4])
    simulation = Simulation(spec, [[1] * 4] * 2, NEVER, 4)

    seen = open_run(simulation, [Arrival(at, 2) for at in (0.0, 9.0, 20.0, 30.0)], ["a", "b"])

    # The first model until 10, and at once again, for the second request came at 9: until 20. Then the second with both
    # that have been there; then the first one after it, with the two that came meanwhile.
    assert [(r.first, r.last) for r in simulation.done] == [
        (10.0, 53.0),
        (20.0, 53.0),
        (67.0, 100.0),
        (67.0, 100.0),
    ]
    assert [model.launches for model in seen.models] == [{"window": 3}, {"window": 2}]


def test_a_gate_that_waited_long_enough_stands_in_line_once():
    spec = there_and_back(100.0, 10.0, in_turn=True)
    simulation = Simulation(spec, [[1] * 4, [2] * 4], 30.0, 4)

    seen = open_run(simulation, [Arrival(0.0, 2), Arrival(50.0, 2)], ["first", "second"])

    # At the second model from 100 on; its gate opens at 130, its turn comes when the other request is done at 200.
    assert [r.last for r in simulation.done] == pytest.approx([210.0, 210.0])
    assert seen.models[1].launches == {"max_wait": 1}


def test_a_prompt_is_read_in_its_models_turn():
    spec = there_and_back(10.0, 30.0, in_turn=True)
    simulation = Simulation(spec, [[1] * 4] * 2, NEVER, 4, prompts=reading())

    open_run(simulation, [Arrival(0.0, 2, 100), Arrival(0.0, 2, 100)], ["a", "b"])

    # Each model reads both prompts, 60 ms the first and 50 each beside or behind it, and never at once.
    assert max(r.last for r in simulation.done) >= 4 * 50.0
    assert sum(server.busy for server in simulation.servers) == pytest.approx(simulation.now)


def test_a_request_goes_its_first_ways_until_it_has_written():
    """Before its first token a request is always handed on, by a step that commits nothing; afterwards never."""
    spec = Spec(n=1, step_ms=[[10.0], [30.0]], p=[[1.0, 0.0]] * 2, c=[[1.0, 0.0]] * 2)
    first = First(p=[[0.0, 1.0], [1.0, 0.0]], c=[[0.0, 0.0], [1.0, 0.0]])
    simulation = Simulation(spec, [[1]] * 2, NEVER, 1, first=first)

    seen = open_run(simulation, [Arrival(0.0, 4)], ["small", "large"])

    assert [(r.first, r.last) for r in simulation.done] == [(40.0, 70.0)]
    assert [server.through for server in simulation.servers] == [4, 1]
    assert seen.tokens_per_s == pytest.approx(4 / 0.07)


def test_ways_without_the_stopped_and_the_stopped_starting_anew_are_p_again():
    p, c, starts = (
        [[0.5, 0.3, 0.2], [0.6, 0.1, 0.3]],
        [[0.8, 0.5, 0.0], [0.8, 0.6, 1.0]],
        [0.75, 0.25, 0.0],
    )

    ways = ways_of(p, c, starts, Stops([0.2, 1.0], [0.5, 0.6]))

    assert ways.stops == [
        (0.2, 0.5),
        (pytest.approx(0.4), 0.6),
    ]  # of the second no more than P has room for
    for source in range(2):
        share, kept = ways.stops[source]
        left = np.diff(ways.upto[source], prepend=0.0)
        again = left + share * np.array(starts)
        assert again == pytest.approx(p[source])
        commits = left @ ways.kept[source] + share * kept
        assert commits == pytest.approx(np.dot(p[source], c[source]))


def test_a_gate_opens_at_the_moment_that_its_oldest_has_waited_long_enough():
    simulation = Simulation(there_and_back(100.0, 10.0), [[1] * 4, [2] * 4], 30.0, 4)

    seen = open_run(simulation, [Arrival(0.0, 2), Arrival(50.0, 2)], ["first", "second"])

    # At the second model from 100 on, while the other request keeps the first one busy until 200.
    assert [r.last for r in simulation.done] == pytest.approx([140.0, 210.0])
    assert seen.models[1].launches == {"max_wait": 1, "nothing_else": 1}


def reading(eager=(False, False), tokens=100, stall_ms=None):
    """A token of a prompt takes half a millisecond, any batch 10 more."""
    curves = [[(20, 20.0), (100, 60.0)]] * 2
    return Prompts(tokens, curves, list(eager), stall_ms, hidden=[10**9] * 2)


def test_a_prompt_is_read_before_the_first_token():
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 4, prompts=reading())

    seen = open_run(simulation, [Arrival(0.0, 3), Arrival(1000.0, 3, 40)], ["only"])

    assert [r.first - r.arrived for r in simulation.done] == pytest.approx([60.0, 30.0])
    assert seen.latency.p99 == pytest.approx(80.0)


def test_step_times_that_fall_with_the_batch_make_no_prompt_short(plan, file):
    """Straight on, a prompt of 64 would be read in less than no time, and the clock would run backwards."""
    told = json.loads(file.read_text())
    system = told["windows"]["system"]
    system["step_ms"] = [
        [10.0 - 0.2 * b for b in range(len(row))] if len(row) > 1 else [10.0]
        for row in system["step_ms"]
    ]
    file.write_text(json.dumps(told))

    prompts = prepare(named(file)).prompts

    for n in (1, 4, 64, 512):
        assert prompts.ms(0, n, beside=False) >= 10.0
        assert prompts.ms(0, n, beside=True) >= 0.0


@pytest.mark.parametrize("curve", [[(16, 10.0), (64, 100.0)], [(1, 10.0), (2, 9.8)]])
def test_no_prompt_takes_less_than_no_time_however_the_points_lie(curve):
    prompts = Prompts(tokens=64, curves=[curve], eager=[False])

    for n in (1, 2, 16, 64, 512):
        assert prompts.ms(0, n, beside=False) >= prompts.ms(0, n, beside=True) >= 0.0


def test_a_prompt_beside_a_batch_costs_what_it_adds_and_delays_that_batch():
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 4, prompts=reading())

    open_run(simulation, [Arrival(0.0, 3), Arrival(60.0, 1)], ["only"])

    # The second token of the first request, 10, waits for a prompt of 50 beyond what a batch costs anyway.
    assert [r.last for r in simulation.done] == pytest.approx([120.0, 130.0])


def test_a_long_prompt_is_read_in_pieces_between_which_others_write():
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 4, prompts=reading(tokens=1))

    open_run(simulation, [Arrival(0.0, 5), Arrival(1.0, 1, 1200)], ["only"])

    # Beside one decode 511, 511 and 178 tokens: each at half a millisecond, and 10 for the decode.
    first, second = sorted(simulation.done, key=lambda r: r.arrived)
    assert second.last == pytest.approx(10.5 + 3 * 10.0 + 1200 / 2)
    assert first.last == pytest.approx(second.last + 10.0)


def test_those_that_write_wait_for_prompts_no_longer_than_they_may():
    def last(stall_ms):
        prompts = reading(tokens=1, stall_ms=stall_ms)
        simulation = Simulation(one_model(), [[1] * 4], NEVER, 4, prompts=prompts)
        open_run(simulation, [Arrival(0.0, 5), Arrival(1.0, 1, 1200)], ["only"])
        return sorted(simulation.done, key=lambda r: r.arrived)[0].last

    # After the first token: 16 tokens as long as nothing is known, 18 ms, so 17 in the next 20 ms, and 18 by what is known then.
    assert last(20.0) == pytest.approx(10.5 + 18.0 + 18.5 + 19.0 + 19.0)
    # A bound that no batch reaches: 16 tokens, and then what the batch has room for.
    assert last(1e6) == pytest.approx(10.5 + 18.0 + 2 * (10 + 511 / 2) + 10 + 162 / 2)


def test_those_that_write_may_wait_as_long_as_four_batches_without_prompts():
    prompts = reading(tokens=1, stall_ms=20.0)
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 4, prompts=prompts)

    open_run(simulation, [Arrival(0.0, 7), Arrival(35.0, 1, 1200)], ["only"])

    # Three batches of 10 ms after the first token; then 16 tokens of the prompt, and 35 and 41 in what may be 40 ms.
    first, _ = sorted(simulation.done, key=lambda r: r.arrived)
    assert first.last == pytest.approx(10.5 + 3 * 10.0 + 18.0 + 27.5 + 30.5)


def test_nobody_waits_for_prompts_where_nobody_writes():
    prompts = reading(tokens=500, stall_ms=20.0)
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 4, prompts=prompts)

    seen = open_run(simulation, [Arrival(0.0, 1)], ["only"])

    assert seen.latency.mean == pytest.approx(260.0)


def test_a_short_prompt_does_not_wait_for_the_long_one_before_it():
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 4, prompts=reading())

    open_run(simulation, [Arrival(0.0, 1, 1200), Arrival(0.0, 1, 200)], ["only"])

    # Of 512 tokens the short one has its 200 in the first batch.
    short, long = sorted(simulation.done, key=lambda r: r.last)
    assert (short.prompt, short.last) == (200, pytest.approx(10 + 256.0))
    assert long.last == pytest.approx(2 * (10 + 256) + 10 + 376 / 2)


@pytest.mark.parametrize(("eager", "last"), [(True, 90.0), (False, 120.5)])
def test_a_model_that_reads_ahead_has_read_when_a_request_comes(eager, last):
    prompts = reading(eager=(False, eager))
    simulation = Simulation(there_and_back(10.0, 30.0), [[1] * 4] * 2, NEVER, 4, prompts=prompts)

    open_run(simulation, [Arrival(0.0, 2)], ["first", "second"])

    # 60 at the first. There the second has read all but the last token; or it reads prompt and first token then.
    assert simulation.done[0].last == pytest.approx(last)


def test_a_request_that_comes_while_its_prompt_is_read_ahead_waits_for_the_rest():
    prompts = Prompts(
        tokens=100, curves=[[(1, 1.0), (2, 1.0)], [(1, 1.0), (2, 2.0)]], eager=[False, True]
    )
    simulation = Simulation(there_and_back(10.0, 30.0), [[1] * 4] * 2, NEVER, 4, prompts=prompts)

    seen = open_run(simulation, [Arrival(0.0, 2)], ["first", "second"])

    # At the second model from 1 on, where 99 tokens are read until 99, and the last one, for its logits, after it.
    assert simulation.done[0].last == pytest.approx(100.0)
    assert seen.models[1].launches == {}


def test_littles_law_holds_to_the_last_digit():
    simulation = Simulation(one_model(), [[2] * 4], 15.0, 4)
    arrivals = list(poisson(12.0, 400, random.Random(3)))

    seen = open_run(simulation, arrivals, ["only"])

    in_system = (seen.mean_active + seen.mean_queue) * seen.seconds
    assert in_system == pytest.approx(seen.latency.mean / 1000 * seen.requests)
    assert seen.requests == 400
    assert seen.mean_queue > 0


def test_no_more_than_max_active_are_admitted():
    simulation = Simulation(one_model(), [[1] * 4], NEVER, 3)

    seen = open_run(simulation, [Arrival(0.0, 5)] * 20, ["only"])

    assert seen.mean_active <= 3
    assert seen.longest_queue == 17
    # Three at a time, five steps each.
    assert seen.seconds == pytest.approx(7 * 5 * 0.010)


def test_arrivals_that_outrun_the_plan_are_called_so():
    busy = open_run(
        Simulation(one_model(), [[1] * 4], NEVER, 4),
        list(poisson(100.0, 200, random.Random(1))),
        ["only"],
    )
    calm = open_run(
        Simulation(one_model(), [[1] * 4], NEVER, 4),
        list(poisson(2.0, 200, random.Random(1))),
        ["only"],
    )

    assert not busy.kept_up
    assert calm.kept_up
    assert busy.latency.mean > 5 * calm.latency.mean


def test_lengths_are_geometric_with_the_mean_asked_for():
    simulation = Simulation(one_model(tokens=12.0), [[1] * 4], NEVER, 4)

    lengths = [simulation.length() for _ in range(4000)]

    assert np.mean(lengths) == pytest.approx(12.0, abs=0.7)
    assert np.std(lengths) == pytest.approx((12 * 11) ** 0.5, rel=0.08)


def test_the_same_seed_gives_the_same_run():
    assert closed(pair(4), (1, 2), seed=5, tokens=800) == closed(
        pair(4), (1, 2), seed=5, tokens=800
    )


# --- Traces


@pytest.mark.parametrize("begin", [0, 2, 1_764_478_000])
def test_a_trace_is_read_in_order_of_time_from_its_first_arrival_on(tmp_path, begin):
    file = tmp_path / "trace.jsonl"
    later = {"at": begin + 1.5, "output_tokens": 9, "user": "x"}
    file.write_text(f"{json.dumps(later)}\n\n{json.dumps({'at': begin})}\n")

    assert read(file) == [Arrival(0.0, None), Arrival(1500.0, 9)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"at": -1}', ":1: `at` is -1"),
        ('{"at": 1}\n{"at": 1, "output_tokens": 0}', ":2: `output_tokens` is 0"),
        ("at 1", ":1: not JSON: "),
        ('{"on": 1}', ":1: object missing required field `at`"),
        ("\n", "no arrivals"),
        ('{"at": 0}\n{"at": 1e12}', "1e+12 s lie between the first arrival and the last"),
        ('{"at": 0}\n{"at": 1e308}', "s lie between the first arrival and the last"),
    ],
)
def test_a_bad_trace_is_one_line(tmp_path, text, message):
    file = tmp_path / "trace.jsonl"
    file.write_text(text)

    with pytest.raises(TraceError) as caught:
        read(file)
    assert message.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


# --- The verb


@pytest.fixture
def file(plan, tmp_path):
    """A plan of two or three models with a system of its own."""
    n = len(plan.models)
    most = plan.windows.max_active
    system = System(
        step_ms=[[5.0 + 4 * model + 0.1 * b for b in range(most)] for model in range(n)],
        p=[[1 / n] * n for _ in range(n)],
        c=[[1.0] * n for _ in range(n)],
        model_of=list(range(n)),
        entry=[1.0] + [0.0] * (n - 1),
        mean_output_tokens=30.0,
        delta_ms=0.1,
    )
    windows = msgspec.structs.replace(plan.windows, system=system, source="profile")
    write(seal(msgspec.structs.replace(plan, windows=windows)), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def simulate(file, capsys, *arguments):
    code = cli.main(["simulate", str(file), *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_verb_tells_of_clients_and_of_rates(plan, file, capsys):
    code, page, _ = simulate(file, capsys, "--clients", "2", "--tokens", "400")
    assert code == 0
    assert "tokens/s" in page
    assert all(model.name in page for model in plan.models)

    code, text, _ = simulate(file, capsys, "--rate", "3", "--n", "50", "--json")
    told = json.loads(text)
    assert code == 0
    assert told["requests"] == 50
    assert told["mode"] == "open"
    assert told["numbers"] == "plan (profile)"
    assert [model["name"] for model in told["models"]] == [m.name for m in plan.models]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("entry", 0.0, "`entry` sums to 0"),
        ("p", 0.0, "row 0 of `p` sums to 0; it must sum to 1"),
        ("mean_output_tokens", -3.0, "`mean_output_tokens` is -3"),
    ],
)
def test_a_plan_whose_system_cannot_be_is_one_line(file, capsys, field, value, words):
    told = json.loads(file.read_text())
    system = told["windows"]["system"]
    if field == "mean_output_tokens":
        system[field] = value
    else:
        list_ = system[field] if field == "entry" else system[field][0]
        list_[:] = [value] * len(list_)
    file.write_text(json.dumps(told))

    code, _, err = simulate(file, capsys, "--clients", "2", "--tokens", "400")

    assert code == 1
    assert words in err and err.count("\n") == 1


@pytest.fixture
def file_in_turn(plan, file):
    """The same plan where models step in turn, and a step after another's takes three times as long."""
    told = json.loads(file.read_text())
    system = told["windows"]["system"]
    system["in_turn"] = True
    system["after_ms"] = [[3 * ms for ms in row] for row in system["step_ms"]]
    file.write_text(json.dumps(told))
    return file


def test_a_plan_in_turn_is_slower_by_what_its_steps_after_others_take(file, file_in_turn, capsys):
    common = ("--clients", "1", "--tokens", "4000", "--windows", "off", "--json")

    told = json.loads(simulate(file_in_turn, capsys, *common)[1])

    # One request, all ways alike: with two models half of all steps follow another model's, with three two thirds.
    system = json.loads(file_in_turn.read_text())["windows"]["system"]
    n = len(system["step_ms"])
    steps = [row[0] for row in system["step_ms"]]
    mean = sum(steps) / n * (1 + 2 * (n - 1) / n)
    # Those that end go on at the first model.
    assert told["tokens_per_s"] == pytest.approx(1000 / mean, rel=0.06)
    assert sum(model["utilisation"] for model in told["models"]) == pytest.approx(1, abs=1e-6)


def test_twice_the_speed_of_all_is_twice_the_throughput_in_turn_too(plan, file_in_turn, capsys):
    test_twice_the_speed_of_all_is_twice_the_throughput(plan, file_in_turn, capsys)


def test_twice_the_speed_of_all_is_twice_the_throughput(plan, file, capsys):
    speeds = [part for model in plan.models for part in ("--speed", f"{model.name}=2x")]
    common = ("--clients", "2", "--tokens", "2000", "--windows", "off", "--json")

    before = json.loads(simulate(file, capsys, *common)[1])["tokens_per_s"]
    after = json.loads(simulate(file, capsys, *common, *speeds)[1])["tokens_per_s"]

    assert after == pytest.approx(2 * before, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "one of the arguments --trace --rate --clients is required"),
        (("--rate", "0"), 2, "`0` is no positive number"),
        (("--rate", "1", "--speed", "nobody=2x"), 1, "the plan has no model `nobody`"),
        (("--rate", "1", "--speed", "small"), 2, "`small` is not of the form"),
        (("--trace", "missing.jsonl"), 1, "missing.jsonl: no such file"),
        (("--clients", "2", "--profile", "missing.json"), 1, "missing.json: no such file"),
        (("--clients", "2", "--max-active", "5000"), 1, "at most 1024"),
        (("--rate", "1e-300", "--n", "5"), 1, "5 requests at 1e-300 a second take"),
        (("--rate", "1", "--speed", "small=1e-300x"), 1, "give a --speed nearer to 1x"),
        (("--rate", "1", "--speed", "small=1e6x"), 1, "give a --speed nearer to 1x"),
        (("--rate", "1", "--speed", "small=1e308x"), 1, "give a --speed nearer to 1x"),
    ],
)
def test_wrong_use_is_one_clear_line(file, capsys, arguments, code, words):
    got, _, err = simulate(file, capsys, *arguments)

    assert got == code
    assert words in err.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def measured():
    """A plan of two models, and a profile of it."""
    plan = plan_of(r_stitch())
    return plan, profile_of(plan)


def simulate_measured(plan, profile, tmp_path, capsys, *arguments):
    write(plan, tmp_path / "plan.json")
    write_profile(profile, tmp_path / "profile.json")
    given = ("--profile", str(tmp_path / "profile.json"), *arguments)
    return simulate(tmp_path / "plan.json", capsys, *given)


def test_a_profile_of_the_plan_is_simulated(measured, tmp_path, capsys):
    code, out, _ = simulate_measured(
        *measured, tmp_path, capsys, "--clients", "2", "--tokens", "400"
    )

    assert code == 0
    assert "step times: profile" in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: {"program_hash": "0" * 64}, "measured program 0000000000000000, but"),
        (
            lambda p: {"models": [unslowed(p.models[0])], "ways": alone(p.ways)},
            "measured the models small,",
        ),
        (
            lambda p: {"ways": msgspec.structs.replace(p.ways, start=[4, 6])},
            "counts 2 start rules, but the policy has 1",
        ),
    ],
)
def test_a_profile_of_something_else_is_refused_in_one_line(
    measured, tmp_path, capsys, change, words
):
    plan, profile = measured
    profile = msgspec.structs.replace(profile, **change(profile))

    code, _, err = simulate_measured(plan, profile, tmp_path, capsys, "--clients", "2")

    assert code == 1
    assert words in err and "run `trc profile` again" in err and err.count("\n") == 1


@pytest.fixture(scope="module")
def stopping():
    """A plan whose small model stops a fifth of the answers with each token, and a profile that counted so."""
    rules = (cmp(ENTROPY, ">", 3), STOP), (cmp(ENTROPY, ">", 2), then("large")), (None, COMMIT)
    plan = plan_of(automaton(("small", *rules), ("large", (None, then("small")))), max_active=8)
    moves = [(0, 0, True, None, 2000), (0, 1, True, 1, 1000), (0, 2, True, 0, 7000)]
    profile = profile_of(plan, [*moves, (1, 0, True, 0, 1000)])
    ways = msgspec.structs.replace(profile.ways, requests=2000, tokens=11000, ended=2000)
    return plan, msgspec.structs.replace(profile, ways=ways)


@pytest.mark.parametrize("load", [("--rate", "0.1", "--n", "500"), ("--clients", "3")])
def test_answers_end_where_the_policy_stops_them(stopping, tmp_path, capsys, load):
    _, text, _ = simulate_measured(*stopping, tmp_path, capsys, *load, "--json")

    told = json.loads(text)
    # A fifth of small's decisions stop, and each hand-over to large, one in ten, brings a token more.
    assert told["tokens_per_s"] * told["seconds"] / told["requests"] == pytest.approx(5.5, rel=0.1)


def test_a_plan_compiled_with_a_profile_stops_answers_as_the_profile_does(
    stopping, tmp_path, capsys
):
    plan, profile = stopping
    system = of_profile(plan, profile)
    windows = msgspec.structs.replace(plan.windows, system=system, source="profile")
    rules = [[0.2, 0.1, 0.7], [1.0]]
    estimates = msgspec.structs.replace(plan.estimates, rules=rules)
    write(
        seal(msgspec.structs.replace(plan, windows=windows, estimates=estimates)),
        tmp_path / "plan.json",
    )

    _, text, _ = simulate(tmp_path / "plan.json", capsys, "--rate", "0.1", "--n", "500", "--json")

    told = json.loads(text)
    assert told["tokens_per_s"] * told["seconds"] / told["requests"] == pytest.approx(5.5, rel=0.1)


def test_stops_leave_the_speed_of_a_closed_system_as_the_model_has_it(stopping):
    setup = prepare(*stopping, stall_ms=None)
    speeds = []
    for stops in (setup.stops, None):
        simulation = Simulation(setup.spec, setup.table, 5.0, 8, seed=5, stops=stops)
        outcome = closed_run(simulation, 4, 20000, ["small", "large"])
        speeds.append((outcome.tokens_per_s, outcome.stderr))

    (with_stops, error), (without, other) = speeds
    assert abs(with_stops - without) < SURE * (error**2 + other**2) ** 0.5


def test_a_length_that_is_given_is_written_whatever_the_policy_would_stop(
    stopping, tmp_path, capsys
):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f'{{"at": {at}, "output_tokens": 40}}\n' for at in range(20)))
    given = json.loads(
        simulate_measured(*stopping, tmp_path, capsys, "--trace", str(trace), "--json")[1]
    )
    mean = json.loads(
        simulate_measured(
            *stopping,
            tmp_path,
            capsys,
            *("--rate", "0.1", "--n", "500", "--json"),
            "--output-tokens",
            "40",
        )[1]
    )

    assert given["tokens_per_s"] * given["seconds"] == pytest.approx(20 * 40)
    assert mean["tokens_per_s"] * mean["seconds"] / 500 == pytest.approx(40, rel=0.15)


def alone(ways):
    """Return the ways of a policy of one model."""
    return msgspec.structs.replace(ways, moves=[m for m in ways.moves if m.model == m.to == 0])


def unslowed(model):
    return msgspec.structs.replace(model, slowed=[])


def test_more_requests_than_the_plan_allows_can_be_asked_for(plan, file, capsys):
    many = str(plan.windows.max_active * 3)
    common = ("--clients", many, "--tokens", "1500", "--json")

    within = json.loads(simulate(file, capsys, *common)[1])
    beyond = json.loads(simulate(file, capsys, *common, "--max-active", many)[1])

    assert within["mean_queue"] > 0
    assert beyond["mean_queue"] == 0
    assert beyond["tokens_per_s"] > within["tokens_per_s"]


def test_plots_are_whole_svg_files_for_light_and_dark(file, capsys, tmp_path):
    code, _, err = simulate(
        file, capsys, "--clients", "3", "--tokens", "200", "--plot", str(tmp_path / "out")
    )

    assert code == 0
    assert err.count("wrote ") == 2
    for name in ("throughput.svg", "windows.svg"):
        text = (tmp_path / "out" / name).read_text()
        root = ET.fromstring(text)
        width, height = (float(root.get(side)) for side in ("width", "height"))
        assert "prefers-color-scheme:dark" in text
        for part in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(part.get("x")) <= width
            assert 0 <= float(part.get("y")) <= height


def test_the_map_holds_every_feasible_cell_and_frames_the_best():
    spec = pair(3)
    drawn = landscape(spec, 3, (0, 1), lambda line: None)

    assert set(drawn.tokens_per_s) == set(every(3, 2))
    best = max(drawn.tokens_per_s, key=drawn.tokens_per_s.get)
    assert drawn.tokens_per_s[1, 2] == pytest.approx(158.1, rel=0.02)
    assert best == (1, 2)
    text = heat_map("pair", drawn, ["small", "large"])
    assert text.count("<title>") == len(drawn.tokens_per_s)
    assert text.count('class="best"') == 1
