"""What a subserver keeps of compiled grammars: few, and none that proved too costly."""

from tokenrouter.runtime.grammar import MAX_KEPT, Grammars, of_regex


class Bytes:
    """A tokenizer whose ids are bytes, and one more for the end."""

    special_ids = frozenset({256})

    def encode(self, text):
        return list(text.encode())

    def id_to_bytes(self, id_):
        return bytes([id_]) if id_ < 256 else b"<end>"


def grammars():
    return Grammars(Bytes, 257, [256])


def follow(kept, pattern, text):
    """Follow a grammar on a text and return the texts that may come next, one id each."""
    matcher = kept.matcher(of_regex(pattern))
    matcher.read(list(text))
    return {id_ for id_, may in enumerate(matcher.allowed()) if may}


def test_few_grammars_are_kept_and_one_that_was_dropped_is_compiled_anew():
    kept = grammars()
    for n in range(3 * MAX_KEPT):
        assert follow(kept, f"a{{{n + 2}}}b", b"a" * (n + 2)) == {ord("b")}
        assert len(kept._kept) <= MAX_KEPT

    assert follow(kept, "a{2}b", b"aa") == {ord("b")}  # long gone
    assert list(kept._kept)[-1] == of_regex("a{2}b")


def test_a_grammar_that_proved_too_costly_is_forgotten():
    kept = grammars()
    follow(kept, "ab", b"a")

    kept.drop(of_regex("ab"))
    kept.drop(of_regex("never seen"))

    assert not kept._kept
    assert follow(kept, "ab", b"a") == {ord("b")}
