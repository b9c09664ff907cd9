"""What the resolved policy holds: units, base numbers, `at any` written out, declarations kept apart, params set."""

import pytest

from tokenrouter.diagnostics import PolicyError
from tokenrouter.dsl import hir
from tokenrouter.dsl.load import check_source, load, parse_text

DECLS = """route 1
model small { use "s"  cost 1 }
model large { use "l"  cost 9.5  tensor_parallel 2  dtype bfloat16 }
head diverge { file "d.safetensors"  reads small.{token, hidden, logits} }
param tau: nats = 0.35 in [0.0, 4.0]
param part: share = 20%
var turns: count = 0
var calm: bool = true
"""


def policy(rule="otherwise -> commit", more="", start="start small", decls=DECLS):
    text = f"{decls}policy p {{ {start}  at small {{ {rule} }}  at large {{ otherwise -> commit }} {more} }}"
    return parse_text(text).policies[0]


def guard(text):
    return policy(f"when {text} -> stop otherwise -> commit").blocks[0].rules[0].when


def problems(text, more=""):
    rule = f"when {text} -> stop otherwise -> commit"
    return check_source(
        f"{DECLS}policy p {{ start small at small {{ {rule} }} at large {{ otherwise -> commit }} {more} }}"
    )


UNITS = {
    "entropy > 0.5": ("nats", 0.5),
    "entropy > 0.5 nats": ("nats", 0.5),
    "varentropy > 1 nats^2": ("nats^2", 1.0),
    "varentropy > entropy * entropy": ("nats^2", None),
    "maxprob < 62%": ("prob", 0.62),
    "share(large) < 40%": ("share", 0.4),
    "entropy_norm < 0.4": ("share", 0.4),
    "position >= 8 tokens": ("count", 8.0),
    "elapsed > 250 ms": ("ms", 250.0),
    "2 * tau < entropy": ("nats", None),
    "entropy / tau > 2": ("number", 2.0),
    "entropy * 50% > 1": ("nats", 1.0),
    "mean(entropy, 8) > tau": ("nats", None),
    "diverge >= 0.62": ("prob", 0.62),
    "request.budget > 3": ("number", 3.0),
    'request.tier == "free"': ("text", "free"),
    "request.fast == true": ("bool", True),
    "1 + 2 < 4": ("number", 4.0),
    "-1 nats < logprob": ("nats", None),
    "aleatoric(10) > 2.275": ("number", 2.275),
}


@pytest.mark.parametrize("text", UNITS)
def test_a_number_takes_the_unit_of_its_place(text):
    unit, value = UNITS[text]

    compare = guard(text)

    assert isinstance(compare, hir.Compare)
    assert (compare.left.unit, compare.right.unit) == (unit, unit)
    if value is not None:
        assert isinstance(compare.right, hir.Const) and compare.right.value == value


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("entropy > maxprob", "TR1101", ("nats", "probability")),
        ("tau > share(large)", "TR1101", ("nats", "share")),
        ("entropy + position > 2", "TR1101", ("nats", "count")),
        ("entropy > 20%", "TR1101", ("nats", "percentage")),
        ("entropy > 20 ms", "TR1101", ("nats", "ms")),
        ("calm > 1", "TR1102", ("condition",)),
        ("position", "TR1102", ("condition", "count")),
        ("not entropy", "TR1102", ("condition", "nats")),
        ("small > 1", "TR1102", ("model",)),
        ("token > 1", "TR1102", ("is",)),
        ("share(entropy) > 1", "TR1001", ("entropy",)),
        ("mean(entropy) > 1", "TR1104", ("mean(signal, n)",)),
        ("mean(entropy, 2.5) > 1", "TR1107", ("whole",)),
        ("mass(0) > 1", "TR1107", ("at least 1",)),
        ("mass(position) > 1", "TR1104", ("written out",)),
        ("entropy(3) > 1", "TR1104", ("entropy",)),
        ("small.entropy > 1", "TR1002", ("small.entropy",)),
        ("entropy > 5 tokens/s", "TR1101", ("tokens/s",)),
    ],
)
def test_what_does_not_go_together_is_one_diagnostic_that_names_it(text, code, words):
    [problem] = problems(text)

    assert problem.code == code
    said = " ".join([problem.message, problem.help, *(label.text for label in problem.labels)])
    assert all(word in said for word in words)


def test_a_declared_unit_is_pointed_at():
    [problem] = problems("tau > maxprob")

    assert any(
        "`tau` is declared here" in label.text and label.span.line == 5 for label in problem.labels
    )


def test_declarations_are_resolved_with_their_defaults():
    read = policy(
        "when diverge > 0.5 and entropy > tau and calm and share(large) < part -> commit set turns = turns + 1 otherwise -> commit"
    )

    assert [
        (m.name, m.use, m.cost, m.tensor_parallel, m.dtype, m.quantize) for m in read.models
    ] == [
        ("small", "s", 1.0, 1, "float32", "none"),
        ("large", "l", 9.5, 2, "bfloat16", "none"),
    ]
    assert [(h.name, h.kind, h.model, h.reads) for h in read.heads] == [
        ("diverge", "r2r", "small", ("hidden", "logits", "token"))
    ]
    assert [(p.name, p.unit, p.value, p.low, p.high) for p in read.params] == [
        ("tau", "nats", 0.35, 0.0, 4.0),
        ("part", "share", 0.2, None, None),
    ]
    assert [(v.name, v.unit, v.value) for v in read.vars] == [
        ("turns", "count", 0.0),
        ("calm", "bool", True),
    ]


ACTIONS = {
    "commit": (True, hir.Stay()),
    "commit then large": (True, hir.To("large")),
    "retry large": (False, hir.To("large")),
    "borrow large for 4": (False, hir.Borrow("large", hir.Const(4.0, "count"))),
    "commit then borrow large for turns": (True, hir.Borrow("large", hir.VarRef("turns", "count"))),
    "stop": (True, hir.Stop()),
    "commit then mix { small: 3  large: 1 }": (True, hir.Mix((("small", 0.75), ("large", 0.25)))),
    "borrow large until maxprob > 90% at most 8": (
        False,
        hir.Borrow(
            "large",
            hir.Const(8.0, "count"),
            hir.Compare(">", hir.SignalRef("maxprob", (), "prob"), hir.Const(0.9, "prob")),
        ),
    ),
}


@pytest.mark.parametrize("text", ACTIONS)
def test_an_action_keeps_or_drops_and_says_who_is_next(text):
    keep, go = ACTIONS[text]

    action = policy(f"when entropy > 1 -> {text} otherwise -> commit").blocks[0].rules[0].action

    assert (action.keep, action.go) == (keep, go)


def test_at_any_stands_for_every_model_without_a_block_and_never_hands_to_itself():
    text = """route 1
model a { use "a" }
model b { use "b" }
policy p {
  start a
  at any {
    when entropy > 1 -> retry b
    when entropy > 0.5 -> commit then a
    otherwise -> commit
  }
}"""
    blocks = parse_text(text).policies[0].blocks

    moves = [[(r.action.keep, r.action.go) for r in block.rules] for block in blocks]
    assert moves == [
        [(False, hir.To("b")), (True, hir.Stay()), (True, hir.Stay())],
        [(True, hir.To("a")), (True, hir.Stay())],
    ]


def test_start_rules_claims_objective_and_template_are_read():
    read = policy(
        "when entropy > 1 -> retry large otherwise -> commit",
        "enforce share(large) <= 40% guarantee count(large) <= 7 objective throughput where speed >= 20 tokens/s "
        "fallback small template from large",
        "start { when prompt_tokens > 2000 -> large otherwise -> mix { small: 1 large: 1 } }",
    )

    assert [rule.go for rule in read.start] == [
        hir.To("large"),
        hir.Mix((("small", 0.5), ("large", 0.5))),
    ]
    assert [(c.kind, c.measure, c.model, c.bound) for c in read.claims] == [
        ("enforce", "share", "large", 0.4),
        ("guarantee", "count", "large", 7.0),
    ]
    assert (str(read.objective), read.fallback, read.template_from) == (
        "throughput where speed >= 20",
        "small",
        "large",
    )


def test_a_derived_signal_keeps_its_name_and_takes_the_unit_of_its_place():
    text = (
        DECLS
        + """signal shaky = mean(entropy, 8) > tau and margin < 0.1
signal half = 0.5
policy p { start small at small { when shaky and maxprob < half -> stop otherwise -> commit } }"""
    )
    read = parse_text(text).policies[0]

    guard_ = read.blocks[0].rules[0].when
    assert isinstance(guard_, hir.AllOf)
    assert isinstance(guard_.of[0], hir.Derived) and guard_.of[0].name == "shaky"
    compare = guard_.of[1]
    assert isinstance(compare, hir.Compare) and compare.right.unit == "prob"
    assert [(s.name, s.unit, s.text) for s in read.signals] == [
        ("shaky", "bool", "mean(entropy, 8) > tau and margin < 0.1"),
        ("half", "number", "0.5"),
    ]


def test_two_policies_of_a_file_do_not_see_each_others_declarations():
    text = (
        DECLS
        + """
policy p { start small at small { when entropy > tau -> stop otherwise -> commit } }
policy q { start large at large { when share(large) > part -> stop otherwise -> commit } }"""
    )
    p, q = parse_text(text).policies

    assert [m.name for m in p.models] == ["small"] and [m.name for m in q.models] == ["large"]
    assert ([x.name for x in p.params], [x.name for x in q.params]) == (["tau"], ["part"])
    with pytest.raises(PolicyError, match="TR1011"):
        parse_text(text, one=True)
    assert parse_text(text, policy="q", one=True).only() == q


RULE = "policy p { start small at small { when entropy > tau -> stop otherwise -> commit } }"


def test_a_param_is_set_within_its_bounds_and_keeps_what_was_declared():
    [tau] = [
        p
        for p in parse_text(DECLS + RULE, sets={"tau": "1.5 nats"}).policies[0].params
        if p.name == "tau"
    ]

    assert (tau.value, tau.declared) == (1.5, 0.35)


@pytest.mark.parametrize(
    ("sets", "code"),
    [
        ({"tau": "5"}, "TR1105"),
        ({"tau": "20%"}, "TR1101"),
        ({"tau": "x"}, "TR1106"),
        ({"tau": ""}, "TR1106"),
        ({"tua": "1"}, "TR1008"),
        ({"tau": "1 } policy"}, "TR1106"),
        ({"tau": "true"}, "TR1102"),
    ],
)
def test_a_wrong_value_is_told(sets, code):
    with pytest.raises(PolicyError) as caught:
        parse_text(DECLS + RULE, sets=sets)

    assert [d.code for d in caught.value.diagnostics if d.severity == "error"] == [code]


@pytest.mark.parametrize(
    ("guard", "more", "said"),
    [
        ('request.z > 3 and request.z == "a"', "", "a text here and as a number"),
        ("request.z > 3 and request.z == true", "", "a condition here and as a number"),
        ("request.z", 'enforce share(large) <= 40% }\ntest "t" for p { at small given request.z = 2 -> stop', "a number"),
        ("request.z > 3", 'enforce share(large) <= 40% }\npolicy q { start small at small { when request.z == "a" -> stop otherwise -> commit }', ""),
        ("request.z > 3 or entropy > request.z", "", ""),
        ('request.z > 3 and request.y == "a"', "", ""),
    ],
)  # fmt: skip
def test_a_request_field_is_of_one_type_in_all_of_a_policy(guard, more, said):
    found = [d for d in problems(guard, more) if d.severity == "error"]

    assert [d.code for d in found] == (["TR1111"] if said else [])
    assert all(f"`request.z` is read as {said}" in d.message for d in found)


def test_a_request_field_of_two_types_is_told_once_with_both_places():
    text = 'request.z > 3 or request.z == "a" or request.z == "b"'
    [found] = [d for d in problems(text) if d.severity == "error"]

    assert found.help.startswith("a request sends one value")
    assert len(found.labels) == 1
    assert found.labels[0].span.start < found.span.start
    assert found.labels[0].text == "a number here"


def test_an_import_brings_declarations_relative_to_its_file(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/common.route").write_text(DECLS, encoding="utf-8")
    main = tmp_path / "main.route"
    main.write_text('route 1\nimport "lib/common.route"\n' + RULE, encoding="utf-8")

    read = load(main)

    assert [m.name for m in read.policies[0].models] == ["small", "large"]
    assert len(read.texts) == 2


@pytest.mark.parametrize("name", ["no_such.route", ".", "a\x00b", "x" * 300])
def test_an_import_of_what_cannot_be_read_is_one_diagnostic(tmp_path, name):
    main = tmp_path / "main.route"

    found = check_source(f'route 1\nimport "{name}"\n', str(main))

    assert [(d.code, d.span.line) for d in found] == [("TR1201", 2)]


def test_files_that_import_each_other_are_one_diagnostic(tmp_path):
    (tmp_path / "a.route").write_text(
        'route 1\nimport "b.route"\n' + DECLS[8:] + RULE, encoding="utf-8"
    )
    (tmp_path / "b.route").write_text('route 1\nimport "a.route"\n', encoding="utf-8")

    with pytest.raises(PolicyError) as caught:
        load(tmp_path / "a.route")

    [problem] = [d for d in caught.value.diagnostics if d.severity == "error"]
    assert problem.code == "TR1202"
    assert problem.message.endswith("`a.route` -> `b.route` -> `a.route`")


def test_comments_belong_to_what_a_reader_takes_them_to_speak_of():
    text = """# the file
route 1

# about small
model small { use "s" }  # its weights

policy p {
  start small
  at small {
    # unsure
    when entropy > 1 -> stop  # end
    otherwise -> commit
    # nothing more
  }
}
# the end
"""
    said = parse_text(text).policies[0].comments

    assert [(c.anchor, c.place, c.text[2:]) for c in said] == [
        ("file", "above", "the file"),
        ("model small", "above", "about small"),
        ("model small", "end", "its weights"),
        ("rule small 0", "above", "unsure"),
        ("rule small 0", "end", "end"),
        ("at small", "end", "nothing more"),
        ("file", "end", "the end"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "code", "place"),
    [
        ("tua", "2", "TR1008", (1, 1, 4)),
        ("tau", "abc", "TR1106", (1, 5, 8)),
        ("tau", "99", "TR1105", (1, 5, 7)),
        ("tau", "20%", "TR1101", (1, 5, 8)),
        ("tau", "true", "TR1102", (1, 5, 9)),
    ],
)
def test_a_setting_that_is_wrong_is_shown_as_it_was_given(name, text, code, place):
    from tokenrouter.diagnostics import PolicyError
    from tokenrouter.dsl.load import parse_text
    from tokenrouter.dsl.render import render
    from tokenrouter.errors import TokenRouterError

    policy = """route 1
model small { use "s" }
param tau: nats = 1 in [0, 4]
policy p { start small at small { when entropy > tau -> stop otherwise -> commit } }
"""

    with pytest.raises(TokenRouterError) as caught:
        parse_text(policy, sets={name: text})

    error = caught.value
    assert isinstance(error, PolicyError)
    [told] = error.diagnostics
    assert (told.code, (told.span.line, told.span.column, told.span.end_column)) == (code, place)
    assert f"1 | {name}={text}\n" in render(told, error.texts)


def test_a_setting_that_is_right_is_no_source_of_the_policy():
    policy = """route 1
model small { use "s" }
param tau: nats = 1 in [0, 4]
policy p { start small at small { when entropy > tau -> stop otherwise -> commit } }
"""

    assert set(parse_text(policy, "p.route", sets={"tau": "2"}).texts) == {"p.route"}
