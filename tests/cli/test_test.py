"""`trc test`: what passed, what failed and why, and which rules no case fires."""

import json

import pytest

from tokenrouter import cli

POLICY = """route 1

model small { use "nowhere/small" }
model large { use "nowhere/large" }
param tau: nats = 2 in [0, 4]

policy p {
  start small
  at small {
    when entropy > tau -> retry large
    otherwise -> commit
  }
  at large {
    when entropy <= tau -> commit then small
    otherwise -> commit
  }
}

test "an unsure token goes to large" for p {
  at small given entropy = 3 -> retry large
  at small given entropy = 1 -> commit
}

test "large goes on while it is unsure" for p {
  at large given entropy = 3 -> commit
}
"""


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "p.route"
    path.write_text(POLICY, encoding="utf-8")
    return path


def test_all_cases_pass_without_model_files(policy, capsys):
    assert cli.main(["test", str(policy)]) == 0
    assert capsys.readouterr().out.endswith("3 passed\n")


def test_a_failing_case_tells_expected_got_and_the_rule(policy, capsys, golden):
    policy.write_text(
        POLICY.replace("entropy = 1 -> commit", "entropy = 1 -> retry large"), encoding="utf-8"
    )

    assert cli.main(["test", str(policy)]) == 1
    golden(capsys.readouterr().out)


def test_coverage_counts_the_passed_cases_of_each_rule(policy, capsys, golden):
    assert cli.main(["test", str(policy), "--coverage"]) == 0
    golden(capsys.readouterr().out)


def test_tests_are_picked_by_name(policy, capsys):
    assert cli.main(["test", str(policy), "-k", "unsure token"]) == 0
    assert capsys.readouterr().out.endswith("2 passed\n")
    assert cli.main(["test", str(policy), "-k", "nothing like it"]) == 1
    assert "no test whose name holds `nothing like it`" in capsys.readouterr().out


def test_a_test_without_cases_is_not_passed_over_in_silence(policy, capsys):
    policy.write_text(POLICY + '\ntest "empty" for p { }\n', encoding="utf-8")
    said = 'none p, "empty": it has no cases, so nothing was tested\n'

    assert cli.main(["test", str(policy)]) == 0
    assert capsys.readouterr().out.endswith(f"{said}3 passed\n")
    assert cli.main(["test", str(policy), "-k", "empty"]) == 1
    assert capsys.readouterr().out.startswith(said)
    assert cli.main(["test", str(policy), "-k", "unsure token"]) == 0
    assert said not in capsys.readouterr().out


def test_a_policy_with_errors_is_not_tested(policy, capsys):
    policy.write_text(POLICY.replace("commit then small", "retry small"), encoding="utf-8")

    assert cli.main(["test", str(policy)]) == 1
    assert "TR2201" in capsys.readouterr().err


def test_json_tells_each_case_and_rule_for_a_machine(policy, capsys):
    policy.write_text(
        POLICY.replace("entropy = 1 -> commit", "entropy = 1 -> retry large"), encoding="utf-8"
    )

    assert cli.main(["test", str(policy), "--format", "json"]) == 1

    found = json.loads(capsys.readouterr().out)
    (told,) = found["policies"]
    assert (found["passed"], found["failed"]) == (2, 1)
    assert [case["passed"] for case in told["cases"]] == [True, False, True]
    failed = told["cases"][1]
    assert (failed["expected"], failed["got"]) == ("retry large", "commit")
    assert failed["rule"] == {"index": 1, "line": 11, "text": "otherwise -> commit"}
    assert [rule["passed_cases"] for rule in told["rules"]] == [1, 0, 0, 1]


def test_json_of_a_file_without_tests_is_whole_too(policy, capsys):
    policy.write_text(POLICY.partition("test ")[0], encoding="utf-8")

    assert cli.main(["test", str(policy), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["cases"] == []


GUARDED = r"""route 1

model small { use "nowhere/small" }
model large { use "nowhere/large" }
param tau: nats = 2 in [0, 4]
var turns: count = 0
signal shaky = mean(entropy, 8) > tau

policy p {
  start small
  at small {
    when token is "\n" -> commit then large set turns = turns + 1
    when shaky and class is word -> borrow large for 2
    when entropy > tau -> retry large
    otherwise -> commit
  }
  at large {
    when entropy <= tau -> commit then small
    otherwise -> commit
  }
  enforce share(large) <= 40%
}

test "broken in several ways" for p {
  at small given entropy = 3, class is word -> retry large
  at small given token is "\n", entropy = 1 -> commit
  at small given token is "\n", entropy = 1 -> commit then large set turns = 2
  at small given token is "x" -> retry large
  at small given class is number -> retry large
  at large given entropy = 1, share(large) = 39% -> commit
  at large given entropy = 3, share(large) = 40% -> commit
  at large given entropy = 3 -> commit then small
}
"""


def test_cases_that_fail_in_many_ways_each_tell_why(policy, capsys, golden):
    policy.write_text(GUARDED, encoding="utf-8")

    assert cli.main(["test", str(policy)]) == 1
    golden(capsys.readouterr().out)


def test_counts_that_enforce_asks_for_are_not_asked_of_a_case(policy, capsys):
    case = 'at small given token is "x"'
    policy.write_text(GUARDED, encoding="utf-8")
    assert cli.main(["test", str(policy)]) == 1
    out = capsys.readouterr().out

    assert "got       nothing, since the case does not give `entropy`\n" in out.split(case)[1]
