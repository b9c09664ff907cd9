"""Lexical classes: what the runtime looks up by id is what the reference reads off the token's text."""

from pathlib import Path

import pytest

import tokenrouter
from tests.e2e.test_exact import ROOT
from tokenrouter.runtime.load import vocabulary
from tokenrouter.runtime.reference.classes import class_of, is_class
from tokenrouter.runtime.reference.load import texts
from tokenrouter.signals import CLASSES


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (" area", "word"),
        ("naïve", "word"),
        ("東京", "word"),
        ("don't", "word"),
        (" 42", "number"),
        ("3.14", "number"),
        ("-7", "number"),
        (" ", "space"),
        ("\t\t", "space"),
        (" \n", "newline"),
        ("\r\n", "newline"),
        ("):", "code"),
        (" ==", "code"),
        ("a_b", "code"),
        (".", "punct"),
        ("…”", "punct"),
        ("", None),
        ("a1", None),
        ("b\ufffd", None),
    ],
)
def test_a_text_has_the_class_that_the_language_page_gives_it(text, name):
    assert class_of(text) == name


def check(plan, base):
    ours, theirs = vocabulary(plan, base), texts(plan.models[plan.tokenizer.template_from], base)
    for name in CLASSES:
        hits = ours.is_class(name)
        assert hits == [is_class(name, *theirs(id_)) for id_ in range(plan.tokenizer.size)], name
        assert any(hits), name


def test_every_id_of_a_tokenizer_file_has_one_class_in_runtime_and_reference(compiled, bench):
    check(compiled(ROOT / "tests/e2e/routes/by_class.route"), bench.root)


@pytest.mark.demo
def test_every_id_of_a_gguf_file_has_one_class_in_runtime_and_reference(tmp_path):
    policy = tmp_path / "classes.route"
    policy.write_text(
        'route 1\nmodel large { use "demo:large" }\npolicy p {\n  start large\n'
        "  at large { when class is word -> commit otherwise -> stop }\n}\n"
    )

    check(tokenrouter.compile(policy), Path())
