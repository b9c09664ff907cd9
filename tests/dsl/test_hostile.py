"""Mistakes of people who come from other languages or are in a hurry: one diagnostic each, in its place, with a way out."""

import pytest

from tests.dsl.policies import HEAD, PING_PONG
from tokenrouter.compiler.analyse import complete
from tokenrouter.dsl.fixes import apply
from tokenrouter.dsl.load import examine

POLICY = PING_PONG + 'test "t" for NAME { at small given entropy = 3 -> retry large }\n'
# By name: what is replaced by what in a policy, the code, the text that is pointed at, and a part of the help.
IN_A_POLICY = {
    "if": ("when entropy > tau", "if entropy > tau", "TR0213", "if", "`when`"),
    "else": ("otherwise", "else", "TR0213", "else", "`otherwise`"),
    "capitals": ("otherwise", "OTHERWISE", "TR0213", "OTHERWISE", "`otherwise`"),
    "goto": ("retry large", "goto large", "TR0212", "goto", "`retry MODEL`"),
    "accept": ("-> commit\n", "-> accept\n", "TR0212", "accept", "`commit`"),
    "planned word misspelt": ("retry large\n", "probee large\n", "TR0212", "probee", ""),
    "colon": ("tau -> retry", "tau : retry", "TR0104", ":", "when CONDITION -> ACTION"),
    "then": ("tau -> retry", "tau then retry", "TR0104", "then", "when CONDITION -> ACTION"),
    "braces": ("-> retry large", "{ retry large }", "TR0104", "{", "when CONDITION -> ACTION"),
    "fat arrow": ("-> retry", "=> retry", "TR0104", "=>", ""),
    "arrow for at least": ("entropy > tau", "switches => 3", "TR0104", "=>", ""),
    "arrow for at least a name": ("entropy > tau", "entropy => tau", "TR0104", "=>", ""),
    "arrow twice": ("entropy > tau -> retry", "entropy > tau and switches => (3) -> retry", "TR0104", "=>", ""),
    "equal or less": ("entropy > tau", "switches =< 3", "TR0104", "=<", ""),
    "not at all equal": ("entropy > tau", "switches !== 3", "TR0104", "!==", ""),
    "typeset arrow": ("-> retry", "\u2212> retry", "TR0104", "\u2212>", ""),
    "typeset minus": ("entropy > tau", "logprob > \u22121", "TR0104", "\u2212", ""),
    "ampersands": ("entropy > tau", "entropy > tau && margin < 0.1", "TR0104", "&&", ""),
    "comma": ("retry large\n", "retry large,\n", "TR0201", ",", "white space"),
    "semicolon": ("retry large\n", "retry large;\n", "TR0101", ";", "line break"),
    "slashes": ("start small", "start small // here", "TR0104", "// here", ""),
    "stars": ("start small", "start small /* a\n b */", "TR0104", "/* a\n b */", ""),
    "no-break space": ("when entropy", "when\u00a0entropy", "TR0101", "\u00a0", "ordinary spaces"),
    "nothing to see": ("when entropy", "when \u200bentropy", "TR0101", "\u200b", "shows as nothing"),
    "power": ("entropy > tau", "entropy ^ 2 > tau", "TR0101", "^", "arithmetic"),
    "modulo": ("entropy > tau", "position % 2 == 0", "TR0201", "%", "when CONDITION -> ACTION"),
    "xor": ("entropy > tau", "entropy > tau xor margin < 0.1", "TR0201", "xor", "when CONDITION"),
    "two operators": ("entropy > tau", "entropy > tau and and true", "TR0201", "and", "leave it out"),
    "open parenthesis": ("entropy > tau", "(entropy > tau", "TR0202", "->", ""),
    "stray parenthesis": ("entropy > tau", "entropy > tau)", "TR0201", ")", "when CONDITION"),
    "no length": ("retry large\n", "borrow large\n", "TR0201", "", "borrow MODEL for N"),
    "no most": ("retry large\n", "borrow large until true\n", "TR0201", "", "at most N"),
    "quoted model": ("retry large\n", 'retry "large"\n', "TR0201", '"large"', "retry MODEL"),
    "stop then": ("retry large\n", "stop then large\n", "TR0201", "then", "commit then MODEL"),
    "mix alone": ("retry large\n", "mix { large: 1 }\n", "TR0214", "mix { large: 1 }", "commit then mix"),
    "comma for and": ("entropy > tau", "entropy > tau, margin < 0.1", "TR0201", ",", "`and`"),
    "retry mix": ("retry large\n", "retry mix { large: 1 }\n", "TR0214", "mix", "commit then mix"),
    "no value set": ("retry large\n", "retry large set\n", "TR0201", "", "set VAR = VALUE"),
    "unit stuck on": ("entropy > tau", "entropy > 1e", "TR0211", "e", ""),
    "hexadecimal": ("entropy > tau", "position > 0x10", "TR0211", "x10", "nats"),
    "no given": ("given entropy = 3 ->", "entropy = 3 ->", "TR0202", "entropy", ""),
    "action in a test": ("3 -> retry large }", "3 -> comit }", "TR0212", "comit", "`commit`"),
    "token equals": ("entropy > tau", 'token == "x"', "TR1102", 'token == "x"', 'token is "x"'),
    "class equals": ("entropy > tau", "class != code", "TR1102", "class != code", "class is not code"),
    "token assigned": ("entropy > tau", 'token = "x"', "TR1102", 'token = "x"', 'token is "x"'),
    "class assigned": ("entropy > tau", "class = code", "TR1102", "class = code", "class is code"),
    "claim assigned": ("start small", "start small enforce share(large) = 40%", "TR3001", "share(large) = 40%", "<= 40%"),
    "claim twice": ("start small", "start small enforce share(large) <= 4% <= 5%", "TR3001", "share(large) <= 4% <= 5%", "<= 40%"),
    "compared in a test": ("given entropy = 3", "given entropy == 3", "TR0104", "==", "gives a value"),
    "arrow for a given": ("given entropy = 3", "given entropy => 3", "TR0104", "=>", ""),
    "torn arrow": ("entropy > tau ->", "entropy > tau - >", "TR0104", "- >", ""),
    "torn arrow in a test": ("3 -> retry large }", "3 - > retry large }", "TR0104", "- >", ""),
    "torn sign": ("entropy > tau", "entropy > = tau", "TR0104", "> =", ""),
    "arguments of none": ("entropy > tau", "entropy(3) > tau", "TR1104", "entropy(3)", ""),
    "word as unit": ("entropy > tau", "margin > 0.5 prob", "TR0211", "prob", "without it"),
    "assignment": ("entropy > tau", "position = 3", "TR0206", "=", ""),
    "chain": ("entropy > tau", "0 < entropy < tau", "TR0207", "0 < entropy < tau", "0 < entropy and"),
    "no comparison": ("entropy > tau", "not entropy", "TR1102", "entropy", "entropy > 0.5"),
    "two units": ("entropy > tau", "margin > tau", "TR1101", "margin > tau", "`entropy`"),
    "two signals": ("entropy > tau", "entropy > maxprob", "TR1101", "entropy > maxprob", "`logprob`"),
    "another unit": ("entropy > tau", "entropy > 20 ms", "TR1101", "entropy > 20 ms", "`elapsed`"),
    "undeclared var": ("retry large\n", "retry large set n = 1\n", "TR1012", "n", "var n: count = 0"),
    "misspelt block": ("at large", "at lrage", "TR1001", "lrage", "`large`"),
    "unknown block": ("at large", "at medium", "TR1001", "medium", "`large`, `small`"),
    "block twice": ("at large", "at small", "TR2004", None, "remove one"),
    "comma before the arrow": ("tau ->", "tau, ->", "TR0201", ",", "white space"),
    "handed to": ("retry large", "retry to large", "TR0201", "to", "leave it out"),
    "model handed to": ("retry large", "retry model large", "TR0201", "model", "leave it out"),
    "commit and then": ("commit then", "commit and then", "TR0201", "and", "leave it out"),
    "commit, then": ("commit then", "commit, then", "TR0201", ",", "white space"),
    "switch": ("retry large", "switch to large", "TR0212", "switch", "commit then MODEL"),
    "a model as action": ("retry large", "large", "TR0212", "large", "commit then MODEL"),
    "then alone": ("retry large", "then large", "TR0201", "then", "commit then MODEL"),
    "retry for a while": ("retry large\n", "retry large for 3\n", "TR0201", "for", "borrow MODEL"),
    "long arrow": ("tau ->", "tau -->", "TR0104", "-->", ""),
    "else if": ("when entropy > tau", "else if entropy > tau", "TR0213", "else if", "`when`"),
    "case": ("when entropy", "case entropy", "TR0213", "case", "`when`"),
    "if in parentheses": ("when entropy > tau", "if (entropy > tau)", "TR0213", "if", "`when`"),
    "no when": ("when entropy > tau", "entropy > tau", "TR0202", "entropy", "when CONDITION"),
    "words for signs": ("entropy > tau", "entropy over tau", "TR0201", "over", "when CONDITION"),
    "otherwise as a condition": ("when entropy > tau", "when otherwise", "TR0210", "otherwise", ""),
    "any as a signal": ("entropy > tau", "any(entropy) > tau", "TR0210", "any", ""),
    "no digit": ("entropy > tau", "margin < .1", "TR0201", ".1", "`0.1`"),
    "decimal comma": ("entropy > tau", "margin < 0,1", "TR0201", "0,1", "`0.1`"),
    "thousands": ("entropy > tau", "position > 2,000", "TR0201", "2,000", "`2_000`"),
    "percent": ("entropy > tau", "margin < 10 percent", "TR0211", "percent", "`%`"),
    "seconds": ("entropy > tau", "elapsed > 2 s", "TR0211", "s", "1000 ms"),
    "list of texts": ("entropy > tau", 'token in ["a", "b"]', "TR0104", "[", 'token in {"a"'),
    "tuple of texts": ("entropy > tau", 'token in ("a", "b")', "TR0104", "(", 'token in {"a"'),
    "open call": ("entropy > tau", "mean(entropy, 8 > tau", "TR0202", "->", "when CONDITION"),
    "colon for a block": ("at small {", "at small:", "TR0104", ":", "however it is indented"),
    "colon for a policy": (" {\n  start", ":\n  start", "TR0104", ":", "however it is indented"),
    "model at": ("at small {", "at model small {", "TR0201", "model", "leave it out"),
    "two braces": ("at small {", "at small { {", "TR0201", "{", "leave it out"),
    "start at": ("start small", "start at small", "TR0201", "at", "leave it out"),
    "start with": ("start small", "start with small", "TR0201", "with", "leave it out"),
    "start is": ("start small", "start = small", "TR0201", "=", "leave it out"),
    "on": ("at large {", "on large {", "TR0213", "on", "`at`"),
    "begin": ("start small", "begin small", "TR0213", "begin", "`start`"),
    "limit": ("start small", "start small limit share(large) <= 4%", "TR0213", "limit", "`enforce`"),
    "action without a rule": ("otherwise -> commit\n", "otherwise -> commit\n commit\n", "TR0201", "commit", "otherwise -> ACTION"),
    "expect": ("given entropy = 3 ->", "given entropy = 3 expect", "TR0104", "expect", ""),
    "of for for": ('"t" for', '"t" of', "TR0201", "of", "test"),
    "percent of nats": ("entropy > tau", "entropy > 20% + 0.125", "TR1101", "entropy > 20% + 0.125", "one unit"),
    "unit of another place": ("entropy > tau", "entropy > 0.5 prob", "TR1101", "entropy > 0.5 prob", "`maxprob`"),
    "time in counts": ("entropy > tau", "elapsed > 2 count", "TR1101", "elapsed > 2 count", "`switches`"),
    "unit of a number of steps": ("entropy > tau", "mean(margin, 8 prob) > 0.1", "TR1104", "8 prob", "such as `8`"),
    "capital and": ("entropy > tau", "entropy > 1 AND margin < 0.1", "TR0201", "AND", "`and`"),
    "no model to start at": ("start small\n  at small", "start at small", "TR0201", "", "start MODEL"),
    "stop next": ("commit then small", "commit then stop", "TR0210", "stop", "`stop` alone"),
    "drop": ("retry large\n", "drop large\n", "TR0212", "drop", "`retry`"),
    "bits": ("entropy > tau", "entropy > 2 bits", "TR0211", "bits", "0.693"),
    "torn sign in a claim": ("start small", "start small enforce share(large) < = 40%", "TR0104", "< =", ""),
    "claim of less": ("start small", "start small enforce share(large) < 40%", "TR3001", "share(large) < 40%", "share(large) <= 40%"),
    "claim of fewer": ("start small", "start small enforce 4 > count(large)", "TR3001", "4 > count(large)", "count(large) <= 3"),
    "claim the other way round": ("start small", "start small enforce 40% >= share(large)", "TR3001", "40% >= share(large)", "share(large) <= 40%"),
    "claim of something computed": ("start small", "start small enforce share(large) <= share(small)", "TR3001", "share(small)", "write the number out"),
    "per cents of more than all": ("commit then small", "commit then mix { small: 60% large: 50% }", "TR1109", "mix { small: 60% large: 50% }", "leave the `%` out"),
    "a step before the first": ("at small given entropy = 3 -> retry large }", "start given entropy = 3 -> small }", "TR2701", "entropy = 3", "a start rule may read"),
    "at the start in a test": ("at small given entropy = 3", "at start given prompt_tokens = 3", "TR0210", "start", "start given"),
    "quoted class": ("entropy > tau", 'class is "word"', "TR1102", '"word"', "`word`"),
    "bare text": ("entropy > tau", "token is foo", "TR1102", "foo", 'token is "x"'),
    "misspelt class": ("entropy > tau", "class is wrd", "TR1009", "wrd", "`word`"),
    "mean of nothing": ("entropy > tau", "mean(entropy) > 1", "TR1104", "mean(entropy)", "mean(entropy, 8)"),
    "mean over nothing": ("entropy > tau", "mean(entropy, 0) > 1", "TR1107", "0", "such as `1`"),
    "weight of nothing": ("commit then small", "commit then mix { small: 0 }", "TR1109", "small: 0", "mix {"),
}  # fmt: skip
# The same of a whole file.
IN_A_FILE = {
    "colons in a model": ('use "s"', 'use: "s"', "TR0201", ":", "leave it out"),
    "signs in a model": ('use "s"', 'use = "s"', "TR0201", "=", "leave it out"),
    "commas in a model": ('use "s"', 'use "s", cost 1', "TR0201", ",", "white space"),
    "quoted name": ("model small", 'model "small"', "TR0201", '"small"', "model NAME"),
    "call": ('model small { use "s" }', 'small = model("s")', "TR0213", "small", "`model`"),
    "let": ("param tau", "let tau", "TR0213", "let", "`param`"),
    "another assignment": ("nats = 1", "nats := 1", "TR0201", ":", "leave it out"),
    "version": ("route 1", "version 1", "TR0213", "version", "`route`"),
    "assigned model": ('model small { use "s" }', 'model small = "s"', "TR0201", "=", "model NAME {"),
    "bare model": ('model small { use "s" }', 'model small use "s"', "TR0202", "use", ""),
    "no property": ('{ use "s" }', '{ "s" }', "TR0201", '"s"', "model NAME {"),
    "bare path": ('use "s"', "use s", "TR1114", "s", 'use "..."'),
    "ranks of int8": ('use "s"', 'use "s" tensor_parallel 2 quantize int8', "TR1114", "tensor_parallel 2", "leave one"),
    "single quotes": ('use "s"', "use 's'", "TR0104", "'s'", ""),
    "no unit": ("tau: nats =", "tau =", "TR1103", "tau", "param tau: nats"),
    "no value": ("nats = 1 in", "nats 1 in", "TR0202", "1", ""),
    "arrow for a value": ("nats = 1 in", "nats => 1 in", "TR0104", "=>", ""),
    "compared": ("nats = 1 in", "nats == 1 in", "TR0104", "==", "gives a value"),
    "unit behind its value": ("nats = 1 in", "nats = 1 nat in", "TR0211", "nat", ""),
    "kind behind its value": ("nats = 1 in", "nats = 1 prob in", "TR0211", "prob", "without it"),
    "range": ("in [0, 4]", "in 0..4", "TR0201", "0", "in [LOW, HIGH]"),
    "swapped bounds": ("[0, 4]", "[4, 0]", "TR1105", "in [4, 0]", "smaller"),
    "version in the middle": ("param tau", "route 1 param tau", "TR0201", "route 1", "first line"),
    "more than all": ("param tau", "param s: share = 5 param tau", "TR1105", "5", "`5%`"),
    "more than sure": ("param tau", "param s: prob = 120% param tau", "TR1105", "120%", "`100%`"),
    "more than all in bounds": ("param tau", "param s: share = 1 in [0, 7] param tau", "TR1105", "7", "`7%`"),
    "half a count": ("param tau", "param k: count = 2.5 param tau", "TR1107", "2.5", "`2` or `3`"),
    "half a variable": ("param tau", "var k: count = 0.5 param tau", "TR1107", "0.5", "`0` or `1`"),
    "no end": ("[0, 4]", "[0, inf]", "TR0201", "inf", "a number"),
    "no literal": ("param tau", "param b: bool = maybe param tau", "TR0201", "maybe", "`true`"),
    "sum": ("nats = 1 in", "nats = 1 + 1 in", "TR0201", "+", "the result"),
    "unit of nothing": ("tau: nats", "tau: text", "TR1005", "text", "`nats`"),
    "number as a condition": ("param tau", "var y: bool = 3 param tau", "TR1102", "3", "units"),
    "misspelt property": ('use "s"', 'use "s" kost 1', "TR1004", "kost", "`cost`"),
    "quoted cost": ('use "s"', 'use "s" cost "x"', "TR1114", '"x"', "`1.5`"),
    "no ranks": ('use "s"', 'use "s" tensor_parallel 0', "TR1107", "0", "`1`"),
    "half a class": ("param tau", 'head h { python "my.mod" reads small.{hidden} } param tau', "TR1114", '"my.mod"', "package.module:Class"),
    "kind of a class": ("param tau", 'head h { python "m:C" kind mlp reads small.{hidden} } param tau', "TR1114", "kind mlp", "leave `kind` out"),
    "signal of the language": ("param tau", "signal rank = 3 > 2 param tau", "TR1007", "rank", "my_rank"),
    "outside": ("= 1 in", "= 9 in", "TR1105", "9", "from 0 to 4"),
    "unit of the file": ("tau: nats", "tau: bits", "TR1005", "bits", "`nats`"),
}  # fmt: skip


def told(text, name="p.route"):
    found = complete(examine(text, name)).diagnostics
    return [(d.code, text[d.span.start : d.span.end], d) for d in found if d.severity == "error"]


def file(*policies):
    return HEAD + "".join(policies)


def planted(mistake, name="p"):
    old, new = mistake[:2]
    text = POLICY.replace("NAME", name)
    assert old in text
    return text.replace(old, new, 1)


def holds(got, mistake):
    _, _, code, place, help_ = mistake
    assert (got[0], got[1]) == (code, got[1] if place is None else place)
    assert help_ in got[2].help
    assert got[2].help or got[2].fix or code == "TR0211"


def test_the_sound_file_is_clean():
    assert told(file(POLICY)) == []


@pytest.mark.parametrize("name", IN_A_POLICY)
def test_a_mistake_in_a_policy_is_told_once(name):
    [got] = told(file(planted(IN_A_POLICY[name])))

    holds(got, IN_A_POLICY[name])


@pytest.mark.parametrize("name", IN_A_FILE)
def test_a_mistake_in_a_declaration_is_told_once(name):
    old, new = IN_A_FILE[name][:2]
    assert old in HEAD

    [got] = told(file(POLICY).replace(old, new, 1))

    holds(got, IN_A_FILE[name])


def test_as_many_are_told_as_there_are_when_all_stand_in_one_file():
    policies = [planted(m, f"p{at}") for at, m in enumerate(IN_A_POLICY.values())]

    found = told(file(*policies))

    expected = sorted(m[2] for m in IN_A_POLICY.values())
    assert sorted(code for code, _, _ in found) == expected


@pytest.mark.parametrize("names", [("if", "else"), ("braces", "misspelt block"), ("power", "goto")])
def test_neighbours_do_not_hide_each_other(names):
    text = file(POLICY)
    for name in names:
        old, new = IN_A_POLICY[name][:2]
        text = (
            text.replace(old, new, 1)
            if name != "goto"
            else text.replace("-> commit then", "-> goto", 1)
        )

    assert sorted(c for c, _, _ in told(text)) == sorted(IN_A_POLICY[n][2] for n in names)


@pytest.mark.parametrize(
    "name",
    ["colon", "then", "braces", "typeset arrow", "typeset minus", "comma", "semicolon", "slashes",
     "fat arrow", "arrow for at least", "arrow for at least a name", "arrow twice",
     "arrow for a given", "torn arrow", "torn arrow in a test", "torn sign", "compared in a test", "equal or less", "not at all equal", "no-break space", "nothing to see", "token equals", "class equals", "token assigned",
     "class assigned", "assignment", "ampersands", "quoted class", "claim of fewer", "claim the other way round"],
)  # fmt: skip
def test_its_safe_fix_leaves_nothing_to_say(name):
    text = file(planted(IN_A_POLICY[name]))
    fixed, n = apply(text, "p.route", [d for _, _, d in told(text)], unsafe=False)

    assert n == 1
    assert told(fixed) == []


PYTHON = """from tokenrouter.lang import at, commit, model, param, policy, retry

small = model("s")
large = model("l")
tau = param(1.0, unit="nats", within=(0.0, 4.0))


@policy(start=small)
class P:
    @at(small)
    def small_step(step):
        if step.entropy > tau:
            return retry(large)
        return commit()

    @at(large)
    def large_step(step):
        if step.entropy <= tau:
            return commit(then=small)
        return commit()
"""
IN_PYTHON = {
    "import": ("small = model", "import os\nsmall = model", "TR6003", "import os", "never executed"),
    "call": ("        return commit()\n\n", "        print(1)\n        return commit()\n\n", "TR6005", "print(1)", "`var`"),
    "while": ("        return commit()\n\n", "        while 1: pass\n        return commit()\n\n", "TR6005", "while 1: pass", "`var`"),
    "one line if": ("return retry(large)", "return retry(large) if 1 else commit()", "TR6004", "retry(large) if 1 else commit()", "`retry`"),
    "not called": ("return retry(large)", "return retry", "TR6004", "retry", "retry(MODEL)"),
    "quoted model": ("retry(large)", 'retry("large")', "TR6004", '"large"', "without quotes"),
    "computed": ('model("s")', 'model(f"{1}")', "TR6004", 'f"{1}"', "never executed"),
    "no start": ("start=small", "", "TR2003", "P", "@policy(start=MODEL)"),
    "no unit": (', unit="nats"', "", "TR1103", "tau", 'unit="nats"'),
    "no end": ("        return commit()\n\n", "\n", "TR6005", None, "return commit()"),
    "misspelt block": ("@at(large)", "@at(lrage)", "TR1001", "lrage", "`large`"),
    "block twice": ("@at(large)", "@at(small)", "TR2004", None, "remove one"),
    "signal of no step": ("step.entropy >", "entropy >", "TR6004", "entropy", "`step.entropy`"),
    "misspelt signal": ("step.entropy >", "step.entrpy >", "TR1002", "entrpy", "`entropy`"),
    "two units": ("step.entropy >", "step.margin >", "TR1101", "step.margin > tau", "`entropy`"),
    "identity": ("step.entropy > tau", 'step.token is "x"', "TR6004", 'step.token is "x"', ""),
    "swapped bounds": ("(0.0, 4.0)", "(4.0, 0.0)", "TR1105", "(4.0, 0.0)", "smaller"),
    "to itself": ("retry(large)", "retry(small)", "TR2006", "retry(small)", "commit()"),
    "unknown variable": ("retry(large)", "retry(large, set={n: 1})", "TR1012", "n", "n = var("),
    "not returned": ("        return commit()\n\n", "        commit()\n\n", "TR6005", "commit()", "`return commit()`"),
    "round and round": ("return commit(then=small)", "return retry(small)", None, None, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in IN_PYTHON if IN_PYTHON[n][2]])
def test_a_mistake_in_python_is_told_once_in_its_own_spelling(name):
    old, new, code, place, help_ = IN_PYTHON[name]
    assert old in PYTHON

    [got] = told(PYTHON.replace(old, new, 1), "p.py")

    assert (got[0], got[1]) == (code, got[1] if place is None else place)
    assert help_ in got[2].help
    assert "->" not in got[2].help and "otherwise" not in got[2].help


def test_what_the_passes_say_of_python_is_said_in_python():
    old, new = IN_PYTHON["round and round"][:2]
    text = PYTHON.replace(old, new).replace("step.entropy <= tau", "step.margin < 0.1")

    [(code, _, diagnostic)] = told(text, "p.py")

    assert code == "TR2201"
    assert "commit(then=...)" in diagnostic.help


def test_a_declaration_that_a_mistake_cost_is_still_the_nearest_name():
    text = PYTHON.replace('model("s")', 'model("s", cots=1)').replace("start=small", "start=smal")

    assert [(code, d.help) for code, _, d in told(text, "p.py")] == [
        ("TR6006", "did you mean `cost`?"),
        ("TR1001", "did you mean `small`?"),
    ]


BODY = """        if step.entropy > tau:
            return retry(large)
        return commit()
"""
BODIES = {  # by name: a body with mistakes, and what is told
    "a name of a lost statement": ("x = 3\nif step.entropy > x:\n    return retry(larg)\nreturn commit()", ["TR6005", "TR1001"]),
    "a statement before the return": ("if step.entropy > tau:\n    y = 2\n    return retry(larg)\nreturn commit()", ["TR6005", "TR1001"]),
    "one behind it": ("if step.entropy > tau:\n    return retry(larg)\n    y = 2\nreturn commit()", ["TR1001", "TR6005"]),
    "two lost ones": ("x = 3\nif x:\n    commit()\nreturn retry(larg)", ["TR6005", "TR6005", "TR1001"]),
    "an action that is not returned": ("if step.entropy > tau and step.margin > step.entropy:\n    commit()\nreturn commit()", ["TR1101", "TR6005"]),
    "a body without an action": ("if step.margin > tau:\n    pass\nreturn commit()", ["TR1101", "TR6005"]),
    "an else": ("if step.entropy > tau:\n    commit()\nelse:\n    return retry(larg)", ["TR6005", "TR1001"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_lost_statement_of_a_step_function_hides_no_other_mistake(name):
    body, codes = BODIES[name]
    assert BODY in PYTHON
    lines = "".join(f"        {line}\n" for line in body.splitlines())

    assert [code for code, _, _ in told(PYTHON.replace(BODY, lines), "p.py")] == codes


@pytest.mark.parametrize("way", ["retry large", "commit then large", "borrow large for 2"])
def test_a_guarantee_is_not_told_to_hang_on_a_rule_that_is_dead(way):
    text = HEAD + (
        f"policy p {{ start small at small {{ when entropy < 0 -> {way} otherwise -> commit }}"
        " at large { otherwise -> commit } guarantee share(large) <= 40% }"
    )

    assert [code for code, _, _ in told(text)] == ["TR2301"]


def test_a_guarantee_that_a_living_rule_breaks_is_told_beside_a_dead_one():
    text = HEAD + (
        "policy p { start small at small { when entropy < 0 -> retry large"
        " when margin < 0.1 -> retry large otherwise -> commit }"
        " at large { otherwise -> commit } guarantee share(large) <= 40% }"
    )

    assert [code for code, _, _ in told(text)] == ["TR2301", "TR3101"]


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        ("entropy > 0.1 and maxprob >= 1", "below 0 nats"),
        ("rank < 1", "`rank` is at least 1"),
        ("position < 0", "`position` is at least 0"),
        ("logprob > 1", "`logprob` is at most 0"),
    ],
)
def test_a_law_is_told_in_numbers_that_people_write(guard, says):
    [(code, _, problem)] = told(file(planted(("entropy > tau", guard))))

    assert code == "TR2301"
    assert says in problem.message and "-0" not in problem.message


@pytest.mark.parametrize("name", [*IN_A_POLICY, *IN_A_FILE])
def test_a_fix_takes_its_diagnostic_away_and_brings_no_error(name):
    old, new = {**IN_A_POLICY, **IN_A_FILE}[name][:2]
    whole = file(POLICY)
    text = file(planted(IN_A_POLICY[name])) if name in IN_A_POLICY else whole.replace(old, new, 1)
    fixable = [d for _, _, d in told(text) if d.fix is not None]

    mended, n = apply(text, "p.route", fixable, unsafe=True)

    assert n == len(fixable)
    if n:
        left = [d.code for _, _, d in told(mended) if d.severity == "error"]
        assert left == ["TR1012"] * ("set" in new), mended
