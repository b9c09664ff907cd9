"""`trc bench` against a real server, and what it says to wrong arguments."""

import json

import pytest

from tokenrouter import cli

SMALL = ["--requests", "4", "--output-tokens", "6", "--prompt-tokens", "9", "--warmup", "1"]


def test_a_server_is_measured_over_http(server, tmp_path, capsys):
    told, plot = tmp_path / "told.json", tmp_path / "plot.svg"

    status = cli.main(
        [
            "bench",
            server.url,
            "--concurrency",
            "2",
            "--rate",
            "50",
            "--repeat",
            "2",
            *SMALL,
            "--slo",
            "ttft=100s",
            "--json",
            str(told),
            "--svg",
            str(plot),
            "--breakdown",
        ]
    )

    assert status == 0
    result = json.loads(told.read_text())
    assert [row["level"] for row in result["rows"]] == [
        {"concurrency": 2, "rate": None},
        {"concurrency": None, "rate": 50.0},
    ]
    for row in result["rows"]:
        for run in row["runs"]:
            assert (run["requests"], run["failed"]) == (4, 0)
            assert (run["output_tokens"], run["prompt_tokens"]) == (24, 36)
            assert sum(run["share"].values()) == pytest.approx(1)
            assert run["goodput"] == run["requests_per_s"] and run["kept"] == 1
            assert 0 < run["ttft_ms"]["p50"] <= run["e2e_ms"]["max"]
    for row in result["rows"]:
        assert [one["model"] for one in row["breakdown"]] == ["small", "large"]
        for one in row["breakdown"]:
            assert one["steps"] > 0 and 0 < one["seconds"]["model"] < sum(one["seconds"].values())
    out, err = capsys.readouterr()
    assert "where a step's time goes, routed 2" in out
    assert "ping_pong at http" in out and "share of tokens" in out
    assert "routed 2, repeat 2 of 2" in err
    assert plot.read_text().startswith("<svg")
    server.empties()


def test_the_prompts_of_a_file_are_sent(server, tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "the sea", "max_tokens": 3}\n{"prompt": [40, 41]}\n')

    status = cli.main(["bench", server.url, "--prompts", str(prompts), *SMALL, "--json", "-"])

    assert status == 0
    [run] = json.loads(capsys.readouterr().out)["rows"][0]["runs"]
    assert run["output_tokens"] == 2 * 3 + 2 * 6


def test_a_request_that_the_server_refuses_is_told_in_a_line(server, capsys):
    status = cli.main(["bench", server.url, *SMALL, "--set", "tau=11"])

    assert status == 1
    assert "`tau` lies in [0, 10]" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["http://127.0.0.1:9/v1"], "is the server running"),
        (["http://127.0.0.1:9/v1", "--baseline"], "need a plan to serve, not a URL"),
        (["missing.json"], "no such plan"),
        (["p.json", "--slo", "tpot=5"], "`tpot=5` is no limit"),
        (["p.json", "--concurrency", "1,x"], "`x` is no positive whole number"),
        (["p.json", "--rate", "0"], "a rate of 0 sends nothing"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_cannot_be_measured_is_said_in_a_line(given, said, capsys):
    assert cli.main(["bench", *given]) in (1, 2)

    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err
