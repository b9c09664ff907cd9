"""Figures from samples whose times are written down."""

import xml.etree.ElementTree as ET

import msgspec
import pytest

from tokenrouter.bench.figures import Slo, figures, percentile, spread, tpot
from tokenrouter.bench.plot import svg
from tokenrouter.bench.report import Agreement, Level, Result, Row, ratios
from tokenrouter.bench.sample import Sample
from tokenrouter.bench.table import table

FIRST = Sample(
    started=0.0,
    arrivals=[0.1, 0.2, 0.4],
    ended=0.4,
    tokens=3,
    prompt_tokens=5,
    handoffs=1,
    by_model={"small": 2, "large": 1},
)
SECOND = Sample(
    started=1.0,
    arrivals=[1.5, 1.6],
    ended=2.0,
    tokens=5,
    prompt_tokens=7,
    handoffs=3,
    by_model={"small": 0, "large": 5},
)
LOST = Sample(started=0.5, ended=0.6, error="503: not now")


def test_figures_are_as_defined():
    run = figures([FIRST, SECOND])

    assert (run.requests, run.failed, run.output_tokens, run.prompt_tokens) == (2, 0, 8, 12)
    assert run.seconds == 2.0
    assert (run.tokens_per_s, run.requests_per_s) == (4.0, 1.0)
    assert run.ttft_ms.p50 == pytest.approx(300) and run.ttft_ms.max == pytest.approx(500)
    assert run.tpot_ms.max == pytest.approx(150) and run.tpot_ms.mean == pytest.approx(87.5)
    assert run.itl_ms.max == pytest.approx(200) and run.itl_ms.p50 == pytest.approx(100)
    assert run.e2e_ms.p50 == pytest.approx(500)
    assert run.handoffs_per_token == 0.5
    assert run.share == {"small": 0.25, "large": 0.75}
    assert run.goodput is None


def test_a_failed_request_counts_nowhere_but_as_failed():
    run = figures([FIRST, SECOND, LOST], Slo())

    assert (run.requests, run.failed, run.first_error) == (2, 1, "503: not now")
    assert run.output_tokens == 8
    assert run.kept == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("slo", "kept"),
    [
        (Slo(ttft=500), 2),
        (Slo(ttft=499), 1),
        (Slo(tpot=149), 1),
        (Slo(ttft=100, tpot=25), 0),
        (Slo(e2e=400), 1),
        (Slo(e2e=599), 1),
        (Slo(e2e=601), 2),
    ],
    ids=str,
)
def test_goodput_counts_requests_that_keep_every_limit(slo, kept):
    assert figures([FIRST, SECOND], slo).goodput == kept / 2.0


def test_a_server_that_tells_nothing_of_routing_has_no_routing_figures():
    plain = Sample(started=0.0, arrivals=[0.1], ended=0.1, tokens=1)

    run = figures([FIRST, plain])

    assert run.handoffs_per_token is None and run.share is None


def test_the_whole_time_counts_that_of_failed_requests_too():
    early = Sample(started=-1.0, ended=-0.5, tokens=9, prompt_tokens=9, error="first")
    late = Sample(started=1.0, ended=4.0, error="second")

    run = figures([late, FIRST, early, SECOND])

    assert (run.seconds, run.tokens_per_s, run.requests_per_s) == (5.0, 8 / 5, 2 / 5)
    assert (run.output_tokens, run.prompt_tokens, run.first_error) == (8, 12, "second")


def test_a_spread_tells_its_own_percentiles_and_mean():
    told = spread([each / 1000 for each in [*range(100), 901]])

    assert (told.p50, told.p90, told.p99, told.max) == pytest.approx((50, 90, 99, 901))
    assert told.mean == pytest.approx((4950 + 901) / 101)
    assert spread([]) is None


def test_two_tokens_are_enough_for_a_time_a_token_and_one_is_not():
    two = Sample(started=0.0, arrivals=[0.1, 0.4], ended=0.5, tokens=2)
    one = Sample(started=0.0, arrivals=[0.1], ended=0.5, tokens=1)

    assert (tpot(two), tpot(one)) == (pytest.approx(0.3), None)


def test_percentiles_lie_between_neighbours():
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([1.0, 2.0], 99) == pytest.approx(1.99)
    assert percentile([7.0], 99) == 7.0


def result():
    slow = Sample(started=0.0, arrivals=[0.2, 2.2], ended=4.0, tokens=3)
    rows = [
        Row(
            side="routed",
            level=Level(concurrency=2),
            runs=[figures([FIRST], Slo()), figures([SECOND])],
        ),
        Row(side="baseline", level=Level(concurrency=2), runs=[figures([slow, LOST])]),
    ]
    return Result(
        target="plan.json",
        policy="p <&>",
        machine="here",
        started="2026-01-01T00:00:00Z",
        settings={},
        slo=Slo(),
        rows=rows,
        ratios=ratios(rows),
        agreement=Agreement(compared=3, same=2, first_difference=[None, 4, None]),
    )


def test_a_ratio_is_of_medians_and_above_one_where_the_routed_side_is_better():
    [ratio] = result().ratios

    assert ratio.tokens_per_s == pytest.approx((7.5 + 5.0) / 2 / 0.75)
    assert ratio.tpot == pytest.approx(1000 / ((150 + 25) / 2))


def test_a_median_is_that_of_the_repeats_whatever_the_others_are():
    runs = [
        figures([each])
        for each in (FIRST, SECOND, Sample(ended=1.0, tokens=100, arrivals=[1.0], started=0.0))
    ]
    row = Row(side="routed", level=Level(rate=2.0), runs=runs)

    told = row.of(lambda run: run.tokens_per_s)

    assert (told.low, told.median, told.high) == pytest.approx((5.0, 7.5, 100.0))
    assert row.of(lambda run: run.handoffs_per_token) is None


def test_the_table_tells_failures_ratios_and_agreement(golden):
    golden(table(result()))


def test_the_plot_is_well_formed_and_holds_every_side():
    texts = [each.text for each in ET.fromstring(svg(result())).iter() if each.text]

    assert "p <&>: plan.json" in texts
    assert {"routed", "baseline"} <= set(texts)


def test_the_plots_words_fit_into_it_and_the_sides_names_stand_apart():
    long = msgspec.structs.replace(
        result(), target="/a/long/way" * 30 + "/plan.json", machine="a long name, " * 30
    )

    words = [each for each in ET.fromstring(svg(long)).iter() if each.tag.endswith("}text")]

    title, machine, repeats = words[:3]
    assert title.text.startswith("p <&>: /a/long") and title.text.endswith("/plan.json")
    assert len(title.text) * 8.5 < 1000 - 20 and len(machine.text) * 7.3 < 1000 - 20
    [side] = [each for each in words if each.text == "routed"]
    assert side.get("y") == repeats.get("y")
    assert float(side.get("x")) > 20 + 7.3 * len(repeats.text)
