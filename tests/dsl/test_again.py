"""A text that is typed is read from piece to piece as it would be from scratch: tokens, trees, diagnostics, to the last place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenrouter.compiler.analyse import complete
from tokenrouter.dsl.again import Again
from tokenrouter.dsl.load import study
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.pieces import Cutter
from tokenrouter.dsl.source import Source, SourceError
from tokenrouter.dsl.whole import whole
from tokenrouter.lsp.memory import Memory

PATH = "/nowhere/a.route"
SETS = {"tau": "0.5", "dial": "10%"}
OTHER = (
    'route 1\nparam shared: nats = 1 in [0, 4]\nmodel afar { use "a" }\nsignal twice = shared * 2\n'
)
BASE = """route 1
import "other.route"

# λ 🙂 what follows are models
model small { use "s" }
model large { use "l"  cost 4 }
param tau: nats = 1 in [0, 4]
param dial: share = 20% in [0%, 50%]
var n: count = 0
signal shaky = mean(entropy, 8) > tau and not (token in {"a", "🙂"})
head sure { file "sure.safetensors"  reads small.{hidden} }

policy one {
  start small
  at small {
    when entropy > tau and share(large) < dial -> retry large    # behind
    when sure > 50% -> commit set n = n + 1
    otherwise -> commit
  }
  at large { when shaky -> commit then small  otherwise -> commit }
  guarantee share(large) <= 30%
}

policy two { start mix { small: 0.5  large: 0.5 }
  at any { when n > 3 -> stop  when request.kind == "x" -> commit  otherwise -> commit } }
policy three {
  start afar
  at afar { when entropy > twice -> commit then small  otherwise -> commit }
  at small { when margin < 0.1 -> commit then afar  when entropy < 0 -> stop  otherwise -> commit }
}
test "what" for one {
  at small given entropy = 9 -> retry large
  at small given sure = 0.9, entropy = 0 -> commit set n = 1
}
test "more" for two { at small given n = 4 -> stop }
"""
NAMES = "abcdefghijklmn"
LONG = (
    "route 1\n"
    + "".join(f'model {m} {{ use "{m}" }}\n' for m in NAMES)
    + """param tau: nats = 1 in [0, 4]
head sure { file "sure.safetensors"  reads b.{hidden} }
var seen: count = 0
policy long {
  start a
  fallback b
"""
    + "".join(
        f"""  at {m} {{    # of {m}
    when mean(entropy, {k + 2}) > tau and margin < 0.{k + 10} -> {"retry" if k % 3 else "commit then"} {NAMES[k + 1 - len(NAMES)]}
    when token in {{"{m}"}} -> commit set seen = seen + {k}
    otherwise -> commit
  }}
"""
        for k, m in enumerate(NAMES)
    )
    + """  enforce share(c) <= 30%
}
policy other { start a
  at any { when seen > 3 -> commit then b  otherwise -> commit } }
test "what" for long { at a given entropy = 9 -> commit }
"""
)
PASTED = (
    "{", "}", '"', "(", ")", "🙂", "\n", "\r\n", "\r", " ", ";", "=>", "->", "==", "/*", "*/", "// x", "#", "\ufeff", "“x”",
    "not ", "model ", "\npolicy ", "\n  test ", "start ", "at ", "when ", "otherwise -> commit", "route 1\n", "1", "tau", "large",
    "param ", "entropy", "nats", '\nmodel q { use "q" }\n', "\nparam tau: ms = 2\n", "\nsignal s = ((((", "\nvar tau: count = 0\n",
    "\n at a { otherwise -> commit }\n", "\n  at b {", "\n  at most 3", "when sure > 50% -> retry ", "\n  }\n", "\n  start b\n", "commit then a",
    "\nimport \"other.route\"\n", "\npolicy one { start small }\n", "signal shaky = tau > ",
)  # fmt: skip
SPOT = st.floats(0, 1, exclude_max=True)
EDITS = st.one_of(
    st.tuples(st.just("cut"), SPOT, st.sampled_from([1, 1, 2, 9, 80, 400])),
    st.tuples(st.just("paste"), SPOT, st.sampled_from(PASTED)),
    st.tuples(st.just("line"), SPOT, SPOT),
    st.tuples(st.just("undo"), st.none(), st.none()),
)
TEXTS = st.sampled_from([BASE, BASE.replace("\n", "\r\n"), "\ufeff" + BASE, BASE[8:], BASE + BASE[8:], LONG, LONG])  # fmt: skip


def read(path):
    """Return the one file that there is to import."""
    if path.endswith("other.route"):
        return OTHER
    raise SourceError(f"cannot read `{path}`: no such file or directory")


def versions(text, edits):
    """Yield a text, and it after each edit."""
    past = []
    yield text
    for kind, where, what in edits:
        if kind == "undo":
            text = past.pop() if past else text
            yield text
            continue
        past.append(text)
        at = int(where * (len(text) + 1))
        if kind == "cut":
            text = text[:at] + text[at + what :]
        elif kind == "paste":
            text = text[:at] + what + text[at:]
        else:  # lines are copied to elsewhere
            lines = text.splitlines(keepends=True) or [""]
            first, to = int(where * len(lines)), int(what * len(lines))
            text = "".join([*lines[:to], *lines[first : first + 3], *lines[to:]])
        yield text


def told(tree):
    """Return all that there is to a tree."""
    tokens = tree.tokens
    return (
        tree.source, tokens.source, tokens.kinds, tokens.starts, tokens.real, tokens.unclosed,
        tree.file, tree.problems, tree.lost, tree.lost_names,
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(TEXTS, st.lists(EDITS, min_size=1, max_size=10))
def test_the_tree_of_the_pieces_is_that_of_the_text(text, edits):
    cutter = Cutter(PATH)
    for version in versions(text, edits):
        made = told(whole(cutter.cut(version)))

        assert made == told(parse(Source.of(PATH, version)))


@settings(deadline=None, max_examples=60)
@given(TEXTS, st.lists(EDITS, min_size=1, max_size=10))
def test_what_is_found_while_typing_is_what_is_found_from_scratch(text, edits):
    again, memory = Again(PATH), Memory()
    for version in versions(text, edits):
        swift = again.study(version, SETS, read)
        now = swift.resolved
        scratch = study(version, PATH, SETS, read).resolved

        assert (now.diagnostics, now.texts) == (scratch.diagnostics, scratch.texts)
        assert now.policies == scratch.policies
        assert spans(swift, now.policies) == spans(None, scratch.policies)
        passes = {policy.name: policy for policy in now.policies}

        def look(policy, swift=swift, passes=passes):
            return memory.moved(PATH, swift.pieces, passes[policy.name])

        assert complete(now, look, heads=False) == complete(scratch, heads=False)


def spans(swift, policies):
    """Return the places of rules and declarations, in the text."""
    places = [
        part.span
        for policy in policies
        for parts in (
            policy.start, policy.models, policy.params, policy.vars, policy.heads, policy.signals, policy.claims,
            *(block.rules for block in policy.blocks), *(test.cases for test in policy.tests),
        )
        for part in parts
    ]  # fmt: skip
    return places if swift is None else [swift.pieces.place(span) for span in places]


MANY = "".join(f"param p{n}: nats = 1 in [0, 4]\n" for n in range(40))
TRICKY = {
    "a brace whose other one is far away": (
        "policy p {\n start small\n at small {\n when entropy > 1 { commit\n", MANY, "model z }\n",
    ),
    "a brace whose other one is near": ("policy p {\n at small {\n when entropy > 1 { commit\n", "model z }\n"),
    "a head of a file behind a mistake": ("model 5 route 1\n", MANY),
    "a comment over two statements": ("signal a = 1 /* x\n", 'model z { use "z" }\n', "*/ + 2\n", MANY),
    "no comment but a text": ('test "/*" for one {\n', "}\n", 'model z { use "*/" }\n', MANY),
    "a nest over many statements": tuple(f"signal s{n} = {'(' * 30}\n" for n in range(9)),
    "blocks left open": ("policy p { at small { x { when\n", MANY, "policy q { start small\n", MANY),
    "blocks passed over and left open": (
        "policy p { start small at small { model { { otherwise -> commit } }\n", MANY, "policy q { at small {\n",
    ),
    "what is lost reaches to the next": ("param = =\n", "policy p { start small }\n", "signal =\n", MANY),
    "a sign that stands for another": ("signal a = tau => 1\n", MANY, "signal b = tau => \n", "model z {}\n"),
}  # fmt: skip


@pytest.mark.parametrize("parts", TRICKY.values(), ids=TRICKY)
@pytest.mark.parametrize("head", [BASE, "", "route 1\n"], ids=["behind", "alone", "headed"])
def test_a_mistake_is_read_with_all_that_it_reaches(head, parts):
    cutter, again = Cutter(PATH), Again(PATH)
    for n in range(len(parts) + 1):
        text = head + "".join(parts[:n])

        assert told(whole(cutter.cut(text))) == told(parse(Source.of(PATH, text)))
        now, scratch = (
            again.study(text, SETS, read).resolved,
            study(text, PATH, SETS, read).resolved,
        )
        assert (now.diagnostics, now.policies) == (scratch.diagnostics, scratch.policies)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("route 1", "route 2"),
        ("param tau: nats", "param tau: ms"),
        ("param tau: nats", "var tau: nats"),
        ("param tau: nats = 1", "param tau: nats = 9"),
        ("param tau:", "param Tau:"),
        ("param tau:", "param  tau:"),
        ("param tau:", "param tao:"),
        ("var n:", "param tau: nats = 1\nvar n:"),
        ("reads small.{hidden}", "reads large.{hidden}"),
        ('file "sure', 'file "other'),
        ("mean(entropy, 8) > tau", "mean(entropy, 9) > tau"),
        ("mean(entropy, 8) > tau and not", "mean(entropy, 8) > tau  and not"),
        ("signal shaky", "signal shakier"),
        ('model large { use "l"  cost 4 }', 'model large { use "l"  cost 5 }'),
        ("model large", "model  large"),
        ("model large", "model larger"),
        (
            'model small { use "s" }\nmodel large { use "l"  cost 4 }',
            'model large { use "l" }\nmodel small { use "s" }',
        ),
        ("var n: count = 0", "var n: count ="),
        ("-> commit set n = n + 1\n    otherwise", "-> commit\n    otherwise"),
        ("when n > 3", "when 4 > 3"),
        ('kind == "x"', 'kind == "x" and request.kind > 1'),
        ("given entropy = 9 ", "given entropy = 9, sure = 1 "),
        ('test "what" for one', 'test "what" for won'),
        ("policy three", "policy two"),
        ('import "other', 'import "another'),
    ],
)
def test_what_one_change_means_for_the_rest_is_noticed_and_taken_back(old, new):
    assert BASE.count(old) == 1
    again, memory = Again(PATH), Memory()
    for text in (BASE, BASE.replace(old, new), BASE):
        swift = again.study(text, SETS, read)
        now, scratch = swift.resolved, study(text, PATH, SETS, read).resolved

        assert now.diagnostics == scratch.diagnostics
        assert spans(swift, now.policies) == spans(None, scratch.policies)
        found = complete(now, lambda p, s=swift: memory.moved(PATH, s.pieces, p), heads=False)
        assert found == complete(scratch, heads=False)


def test_a_file_that_is_imported_and_changes_is_noticed():
    again, texts = Again(PATH), {"other.route": OTHER}
    for text in (
        OTHER,
        OTHER.replace("shared * 2", "shared * 3"),
        OTHER.replace("model afar", "model far"),
    ):
        texts["other.route"] = text

        def reads(path):
            return texts[path.rpartition("/")[2]]

        now, scratch = again.study(BASE, {}, reads).resolved, study(BASE, PATH, {}, reads).resolved
        assert now == scratch


def test_the_text_of_these_tests_is_one_in_which_the_passes_run():
    found = study(BASE, PATH, SETS, read).resolved

    assert [d.code for d in found.diagnostics if d.severity == "error"] == []
    assert len({d.code for d in complete(found, heads=False).diagnostics}) > 1


def test_only_the_piece_that_changed_is_parsed_and_read_again():
    again = Again(PATH)
    before = again.study(BASE, {}, read)
    typed = BASE.replace("margin < 0.1", "margin < 0.12")

    after = again.study(typed, {}, read)

    old = {piece for piece, _ in before.pieces.pieces}
    assert [p.text[:12] for p, _ in after.pieces.pieces if p not in old] == ["policy three"]
    pairs = zip(before.resolved.policies, after.resolved.policies, strict=True)
    assert {p.name for p, q in pairs if p is q} == {"one", "two"}


def test_only_the_block_that_changed_is_parsed_read_and_looked_at_again():
    again, memory, looked = Again(PATH), Memory(), []
    before = again.study(LONG, {}, read)
    memory.moved(PATH, before.pieces, before.resolved.policies[0])
    after = again.study(LONG.replace("margin < 0.15", "margin < 0.151"), {}, read)

    old, new = (parts(swift, "policy long") for swift in (before, after))
    assert [part.text[:4] for part in new if part not in old] == ["at f"]
    assert len(new) == len(old) == 1 + len(NAMES)
    blocks = [swift.resolved.policies[0].blocks for swift in (before, after)]
    assert [b.model for a, b in zip(*blocks, strict=True) if a is not b] == ["f"]
    memory.moved(PATH, after.pieces, after.resolved.policies[0], lambda: looked.append(1))
    assert len(looked) == 2  # which rules fire, and whether the model is left


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("margin < 0.15", "margin < "),
        ("margin < 0.15 ->", "margin < 0.15 "),
        ("margin < 0.15", "margin < 0.15)"),
        ("at f {    # of f", "at {    # of f"),
        ('token in {"f"}', 'token in {"f}'),
        ("commit set seen = seen + 5", "commit set seen = "),
        ("commit set seen = seen + 5\n    otherwise -> commit", "commit set seen = seen + 5\n"),
    ],
)
def test_a_mistake_in_a_block_costs_no_other_block(old, new):
    again = Again(PATH)
    before = again.study(LONG, {}, read)
    assert LONG.count(old) == 1
    after = again.study(LONG.replace(old, new), {}, read)

    old_parts = parts(before, "policy long")
    fresh = [part for part in parts(after, "policy long") if part not in old_parts]
    assert [part.text[:2] for part in fresh] == ["at"] * len(fresh)
    assert len(fresh) == 1 + (old[:4] == "at f")  # the next one is touched by what is lost
    assert any(d.severity == "error" for d in after.resolved.diagnostics)


SPOTS = ("start a\n", "margin < 0.15 ", "margin < 0.22 ", "<= 30%\n}\n")


@pytest.mark.parametrize("spot", SPOTS)
@pytest.mark.parametrize(
    "typed",
    [
        "\n  }\n}\n", "{", "} ", "} }", "(", '"x', "/* x", "commit then", "\n  at a { otherwise -> commit }\n",
        "\n  at b { otherwise -> commit }\n}\n", "or margin > 1 -> borrow a until margin > 1\n  at most 3\n  when margin < 2%",
        "at b { otherwise -> commit }\n}\n", "=> 1 { commit", "}\npolicy q {", "\n  start b\n",
    ],
)  # fmt: skip
def test_what_is_typed_into_a_block_is_read_as_it_is_from_scratch_and_taken_back(spot, typed):
    cutter, again = Cutter(PATH), Again(PATH)
    for text in (LONG, LONG.replace(spot, spot + typed, 1), LONG):
        assert told(whole(cutter.cut(text))) == told(parse(Source.of(PATH, text)))
        now = again.study(text, SETS, read).resolved
        scratch = study(text, PATH, SETS, read).resolved
        assert (now.diagnostics, now.policies) == (scratch.diagnostics, scratch.policies)


def parts(swift, begins):
    """Return the grains of a policy."""
    return next(piece.parts for piece, _ in swift.pieces.pieces if piece.text.startswith(begins))


def test_a_value_is_looked_at_again_only_where_it_is_read():
    text = LONG.replace("param tau", "param dial: share = 20% in [0%, 50%]\nparam tau").replace(
        'token in {"d"}', "share(b) < dial"
    )
    again, memory, looked = Again(PATH), Memory(), []
    for value in ("20% in", "30% in"):
        swift = again.study(text.replace("20% in", value), {}, read)
        looked.clear()
        memory.moved(PATH, swift.pieces, swift.resolved.policies[0], lambda: looked.append(1))

    assert len(looked) == 2


def test_a_mistake_costs_no_piece_behind_it():
    again = Again(PATH)
    before = again.study(BASE, {}, read)

    after = again.study(BASE.replace("-> retry large ", "-> retry  "), {}, read)

    old = {piece for piece, _ in before.pieces.pieces}
    new = [piece for piece, _ in after.pieces.pieces if piece not in old]
    assert [piece.text[:10] for piece in new] == ["policy one"]
    assert any(d.severity == "error" for d in after.resolved.diagnostics)


def test_a_value_that_is_typed_reads_no_policy_again_but_changes_those_that_have_it():
    again = Again(PATH)
    before = again.study(BASE, {}, read)

    after = again.study(BASE.replace("nats = 1 in", "nats = 2 in"), {}, read)

    pairs = list(zip(before.resolved.policies, after.resolved.policies, strict=True))
    assert [a.start is b.start for a, b in pairs] == [True] * 3
    assert [a is b for a, b in pairs] == [False, True, True]
    assert after.resolved.policies[0].params[0].value == 2


def test_nothing_is_kept_of_what_was_typed_over():
    again = Again(PATH)
    for n in range(50):
        again.study(BASE.replace("entropy > tau", f"entropy > tau + {n} {'(' * (n % 3)}"), {}, read)

    assert len(again.cutter.chunks) == 14
    assert len(again.reads) <= 5
    assert len(again.cutter.kept) <= 2


def test_what_is_above_a_piece_moves_it_and_changes_nothing_else():
    again = Again(PATH)
    before = again.study(BASE, {}, read)

    after = again.study("# one more line\n" + BASE, {}, read)

    same = [a is b for a, b in zip(before.resolved.policies, after.resolved.policies, strict=True)]
    assert same == [True] * 3
