"""The extension for VS Code: its own tests, its package, and its snippets against the language."""

import json
import re
from pathlib import Path

import pytest

from tokenrouter.dsl.load import check_source
from tokenrouter.dsl.table import table

VSCODE = Path(__file__).parents[2] / "editors/vscode"
SNIPPETS = json.loads((VSCODE / "snippets/route.json").read_text(encoding="utf-8"))
PLANNED = {"fuse", "verify", "probe", "undo"}
AROUND = """route 1
model small { use "s" }
model large { use "l" }
%s
policy stitch {
  start small
  at small {
    %s
    otherwise -> commit
  }
  %s
  at any { otherwise -> commit then small }
}
"""


def test_types_lint_and_tests_pass_and_the_package_holds_what_it_should(node):
    tested = node("npm", "test", "--silent")
    passed = re.search(r"^# pass (\d+)$", tested.stdout, re.M)
    assert int(passed[1]) >= 15
    assert re.search(r"^# (fail|cancelled|skipped|todo) [1-9]", tested.stdout, re.M) is None

    packed = node("npm", "run", "--silent", "package")
    assert "tokenrouter.vsix: 10 files" in packed.stdout


def test_everything_that_is_installed_comes_from_the_public_registry_by_name():
    lock = json.loads((VSCODE / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: p for name, p in lock["packages"].items() if name}
    assert len(packages) > 100
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [n for n, p in packages.items() if "integrity" not in p and not p.get("inBundle")] == []


def test_the_policy_whose_colours_are_kept_has_every_word_of_the_language():
    text = (VSCODE / "test/grammar/everything.route").read_text(encoding="utf-8")

    found = check_source(text, str(VSCODE / "test/grammar/everything.route"))
    assert [d for d in found if d.severity == "error"] == []
    assert set(table().words) - set(re.findall(r"\w+", text)) == PLANNED


def expanded(body):
    """Return a snippet as it stands before anything is typed into it."""
    text = "\n".join([body] if isinstance(body, str) else body)
    text = re.sub(r"\$\{\d+\|([^,|]+)[^|]*\|\}", r"\1", text)
    text = re.sub(r"\$\{\d+:([^{}]*(?:\{[^{}]*\})?[^{}]*)\}", r"\1", text)
    return text.replace("$0", "").replace("\\}", "}").replace('\\"', '"')


def placed(name, text):
    """Return a policy with a snippet in a place where it belongs."""
    if name == "a whole policy of two models":
        return text
    if name in ("enforce", "guarantee"):
        return AROUND % ("", "", text)
    if name in ("borrow for", "borrow until", "mix"):
        then = "commit then " if name == "mix" else ""
        return AROUND % ("", f"when entropy > 2 -> {then}{text}", "")
    if name == "at":
        other = text.replace("at small", "at large").replace("retry large", "retry small")
        return AROUND % ("", "", other)
    if name == "when":
        return AROUND % ("", text, "")
    if name == "model":
        return (AROUND % ("", "", "")).replace('model small { use "s" }', text)
    if name == "policy":
        return (AROUND % ("", "", "")).split("policy")[0] + text
    if name == "test":
        return AROUND % ("", "when entropy > 2 -> retry large", "") + text
    assert name in ("head", "param", "var", "signal"), f"say where the snippet `{name}` belongs"
    return AROUND % (text, "", "")


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_is_right_before_anything_is_typed_into_it(name):
    text = placed(name, expanded(SNIPPETS[name]["body"]))

    found = check_source(text, "policy.route")

    assert [(d.code, d.message) for d in found if d.severity == "error"] == []
    assert "$" not in text
