"""The servers of a comparison: how many, and on which threads."""

from pathlib import Path

import pytest

from tests.runtime import toy
from tokenrouter.bench.course import Served
from tokenrouter.bench.report import Level


@pytest.mark.parametrize(
    ("baseline", "asked", "expected"),
    [
        (False, None, [[]]),
        (False, 3, [["--threads", "3"]]),
        (True, 3, [["--threads", "3"]] * 3),
        (True, None, [[], ["--threads", "2"], ["--threads", "2"]]),
    ],
)
def test_ordinary_servers_share_the_cores_where_nobody_says(monkeypatch, baseline, asked, expected):
    monkeypatch.setattr("tokenrouter.bench.course.cores", lambda: 4)
    served = Served(
        plan=toy.ping_pong(), path=Path("p.json"), baseline=baseline, options=[], asked=asked
    )

    assert served.threads() == expected


def test_a_server_has_a_thread_where_there_are_more_models_than_cores(monkeypatch):
    monkeypatch.setattr("tokenrouter.bench.course.cores", lambda: 1)
    served = Served(plan=toy.ping_pong(), path=Path("p.json"), baseline=True, options=[])

    assert served.threads()[1:] == [["--threads", "1"], ["--threads", "1"]]


@pytest.mark.parametrize(("clients", "threads"), [([1], "4"), ([1, 8], "2"), ([None], "2")])
def test_one_client_keeps_one_ordinary_server_busy_which_has_all_cores(
    monkeypatch, clients, threads
):
    monkeypatch.setattr("tokenrouter.bench.course.cores", lambda: 4)
    served = Served(plan=toy.ping_pong(), path=Path("p.json"), baseline=True, options=[])
    levels = [Level(concurrency=n) if n else Level(rate=1.0) for n in clients]

    assert served.threads(levels) == [[], ["--threads", threads], ["--threads", threads]]
