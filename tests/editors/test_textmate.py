"""The TextMate grammar: written from the language's tables, and of one mind with the language server."""

import json
import sys
from pathlib import Path

import pytest

from tests.editors.texts import runs, semantic, sound

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from editing.words import SCOPES  # noqa: E402

# In an expression a name may be any of these; a grammar of lines cannot tell which.
NAMES = {"class", "function", "parameter", "variable", "property"}


def kind(scopes):
    """Return the kind of token that TextMate scopes stand for; None for signs that no one colours."""
    for scope in scopes.split():
        fitting = [k for k, wanted in SCOPES.items() if f"{scope}.".startswith(f"{wanted}.")]
        if fitting:
            return max(fitting, key=lambda k: len(SCOPES[k]))
    assert scopes == "" or scopes.startswith("punctuation."), scopes
    return None


@pytest.fixture(scope="module")
def coloured(node, tmp_path_factory):
    """Return every sound policy with both colours, line by line."""
    folder = tmp_path_factory.mktemp("policies")
    texts = sound()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    told = json.loads(
        node("node", "scripts/textmate.mjs", *(str(folder / n) for n in texts)).stdout
    )
    found = {}
    for name, text in texts.items():
        found[name] = [
            (line, server, [kind_at(line, column, tokens) for column in range(len(line))])
            for line, server, tokens in zip(
                text.split("\n"), semantic(folder / name), told[str(folder / name)], strict=True
            )
        ]
    return found


def kind_at(line, column, tokens):
    if line[column].isspace() and not any(
        s.startswith(("comment", "string")) for _, _, s in tokens
    ):
        return None
    return next((kind(s) for start, end, s in tokens if start <= column < end), None)


def test_the_grammar_colours_every_policy_as_the_server_does(coloured):
    wrong, words = [], 0
    for name, lines in coloured.items():
        for number, (line, server, grammar) in enumerate(lines, 1):
            for start, end, wanted in runs(server):
                words += wanted is not None
                got = {
                    k for c, k in zip(line[start:end], grammar[start:end], strict=True) if c != " "
                }
                fine = got <= {wanted} or (wanted in NAMES and got == {"variable"})
                if not fine and line[start:end].strip():
                    wrong.append(
                        f"{name}:{number}: `{line[start:end]}` is {wanted}, coloured {got}"
                    )
    assert words > 3000
    assert wrong == []


def test_names_are_told_where_the_words_around_them_tell_what_they_are(coloured):
    """So that the colours seldom change when the server has answered."""
    plain = known = 0
    for lines in coloured.values():
        for _, server, grammar in lines:
            for start, _, wanted in runs(server):
                if wanted in NAMES - {"variable"}:
                    known += grammar[start] == wanted
                    plain += grammar[start] != wanted
    assert known > 3 * plain, (known, plain)
