"""Mistakes after which nothing need be dropped: a sign that is missing, one that stands for another, one too many.

Each is reported, and mended in the tokens or on the stack, so that the parser goes on as if it had been written right.
"""

from __future__ import annotations

from abc import abstractmethod

from tokenrouter.dsl import expected, slips
from tokenrouter.dsl.lalr import Build, Machine
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.nearest import nearest
from tokenrouter.dsl.units import NUMERIC

# Words that begin a statement of some list; passing over tokens stops at one that the list at hand can take.
STARTERS = frozenset([
    "IMPORT", "MODEL", "HEAD", "PARAM", "VAR", "SIGNAL", "POLICY", "TEST", "START", "AT",
    "GUARANTEE", "ENFORCE", "OBJECTIVE", "FALLBACK", "TEMPLATE", "WHEN", "OTHERWISE",
])  # fmt: skip
TOP = frozenset(["IMPORT", "MODEL", "HEAD", "PARAM", "VAR", "SIGNAL", "POLICY", "TEST", "$END"])
INSERTABLE = (
    "ARROW", "COLON", "ASSIGN", "RPAR", "RSQB", "RBRACE", "LBRACE", "COMMA", "THEN", "FOR",
    "GIVEN", "MOST",
)  # fmt: skip
_ACTIONS = frozenset(["COMMIT", "RETRY", "BORROW", "STOP"])
_BEHIND_A_VALUE = frozenset(["COMPARE", "IS", "IN", "LPAR", "DOT", "SIGN", "TIMES"])
_WHO = frozenset(["RETRY", "THEN", "BORROW", "START", "FALLBACK", "AT"])  # a model follows
_FILLERS = frozenset(["to", "with", "on", "the", "using"])
# Behind these a statement is not at its end.
WANTS_MORE = _WHO | {
    "FROM", "ASSIGN", "COLON", "COMMA", "LPAR", "LSQB", "COMPARE", "SIGN", "TIMES", "SET", "UNTIL", "WHEN", "GIVEN",
    "AND", "OR", "NOT", "MIX", "DOT",
}  # fmt: skip


class Mender(Machine):
    """A parse that goes on behind small mistakes."""

    def __init__(self, tokens: Tokens, build: Build) -> None:
        super().__init__(tokens, build)
        self.excused: set[int] = set()  # `{` whose `}` is not asked for: another message says why

    def mend(self, at: int) -> int | None:
        """Report and mend a mistake at a token; return where to go on, None where it is none of these."""
        for one in (
            self._version,
            self._word_for_arrow,
            self._unit,
            self._word_as_name,
            self._arrow,
            self._assign,
            self._counting,
            self._number,
            self._set,
            self._block,
            self._one_too_many,
            self._when,
            self._missing,
            self._respell,
        ):
            on = one(at)
            if on is not None:
                return on
        return None

    def kind(self, at: int) -> str:
        """Return the kind of a token by its place; that of the end beyond it."""
        real = self.tokens.real
        return self.tokens.kinds[real[at]] if 0 <= at < len(real) else "$END"

    def text(self, at: int) -> str:
        """Return a token by its place, as written."""
        real = self.tokens.real
        return self.tokens.text(real[at]) if 0 <= at < len(real) else ""

    def first_of_line(self, at: int) -> bool:
        """Return whether a token is the first of its line."""
        real, starts = self.tokens.real, self.tokens.starts
        between = self.tokens.source.text[
            self.tokens.end(real[at - 1]) if at else 0 : starts[real[at]]
        ]
        return at == 0 or "\n" in between or "\r" in between

    def _touches(self, at: int) -> bool:
        """Return whether nothing stands between a token and the one before."""
        return self.tokens.real[at - 1] == self.tokens.real[at] - 1

    def declares(self, at: int) -> bool:
        """Return whether a word of the top level begins a declaration, whatever is open before it."""
        if self.kind(at) not in TOP:
            return False
        return (
            self.kind(at - 1) not in WANTS_MORE or self.kind(at) == "$END" or self.first_of_line(at)
        )

    def _version(self, at: int) -> int | None:
        """Pass over `route 1` behind the beginning of the file."""
        if (
            self.kind(at) != "ROUTE"
            or self.kind(at + 1) != "NUMBER"
            or not self.accepts(["IMPORT"])
        ):
            return None
        self.problems.append(slips.not_first(self.tokens, self.tokens.real[at]))
        return at + 2

    def _word_for_arrow(self, at: int) -> int | None:
        """Mend `given entropy = 3 expect retry large`."""
        if self.kind(at) != "NAME" or self.kind(at + 1) not in _ACTIONS:
            return None
        if slips.unit_like(self.text(at)) or not self.accepts(["ARROW", self.kind(at + 1)]):
            return None
        self.problems.append(slips.arrow(self.tokens, self.tokens.real[at], None))
        self.tokens.kinds[self.tokens.real[at]] = "ARROW"
        return at

    def _unit(self, at: int) -> int | None:
        if self.kind(at) != "NAME" or at == 0 or self.kind(at - 1) != "NUMBER":
            return None
        text = self.text(at)
        if self.first_of_line(at) or self._word_of_ours(text):
            return None
        like = text in expected.KINDS or slips.unit_like(text) is not None
        like = (like and self.kind(at + 1) not in ("NAME", "STRING")) or self.accepts(["NATS"])
        if not like and not self._touches(at):
            return None
        token = self.tokens.real[at]
        checked = text in NUMERIC and self.accepts(["NATS"])
        self.problems.append(slips.unit(self.tokens, token, checked))
        if checked:
            self.tokens.kinds[token] = "NATS"  # it is held against its place as the unit that it is
            return at
        self.tokens.kinds[token] = "STRAY"
        return at + 1

    def _word_of_ours(self, text: str) -> bool:
        """Return whether a name is a word of the language in other letters, or what others write for one."""
        return text.lower() in self.table.words or text.lower() in expected.SYNONYMS

    def _word_as_name(self, at: int) -> int | None:
        token, text = self.tokens.real[at], self.text(at)
        if text not in self.table.words or text in expected.PLANNED:
            return None
        if self.kind(at) in STARTERS and self.first_of_line(at):
            return None  # the statement before it breaks off
        if not self.accepts(["NAME", self.kind(at + 1)]):
            return None
        span = self.tokens.source.span(self.tokens.starts[token], self.tokens.end(token))
        self.problems.append(expected.word_as_name(text, span, self.kind(at - 1)))
        self.tokens.kinds[token] = "NAME"
        self.renamed.add(text)
        return at

    def _arrow(self, at: int) -> int | None:
        kind, token = self.kind(at), self.tokens.real[at]
        if kind not in expected.ARROWS or self.kind(at + 1) not in _ACTIONS:
            return None
        if not self.accepts(["ARROW", self.kind(at + 1)]):
            return None
        closer = self._closer(at) if kind == "LBRACE" else None
        self.problems.append(slips.arrow(self.tokens, token, closer))
        self.tokens.kinds[token] = "ARROW"
        if closer is not None:
            self.tokens.real.remove(closer)
        return at

    def _assign(self, at: int) -> int | None:
        if self.text(at) != "==" or not self.accepts(["ASSIGN", self.kind(at + 1)]):
            return None
        self.problems.append(slips.assign(self.tokens, self.tokens.real[at]))
        self.tokens.kinds[self.tokens.real[at]] = "ASSIGN"
        return at

    def _counting(self, at: int) -> int | None:
        """Mend `set t += 1` and tell of `set t++`."""
        if self.kind(at) not in ("SIGN", "TIMES") or at < 1 or not self.accepts(["ASSIGN"]):
            return None
        if self.kind(at) == "SIGN" and self._touches(at + 1) and self.text(at) == self.text(at + 1):
            name, first, last = self.tokens.real[at - 1 : at + 2]
            self.problems.append(slips.stepping(self.tokens, name, first, last))
            return self.skip(at)
        if self.kind(at + 1) != "ASSIGN":
            return None
        if not self._touches(at + 1) or not self.accepts(["ASSIGN", self.kind(at + 2)]):
            return None
        token, equals = self.tokens.real[at], self.tokens.real[at + 1]
        self.problems.append(slips.counting(self.tokens, self.tokens.real[at - 1], token, equals))
        self.tokens.kinds[token] = "ASSIGN"
        self.tokens.real.remove(equals)
        return at

    def _number(self, at: int) -> int | None:
        """Mend `.5`, `0,5` and `2,000`."""
        if at + 1 >= len(self.tokens.real) or self.kind(at + 1) != "NUMBER":
            return None
        if not self._touches(at + 1):
            return None
        token = self.tokens.real[at]
        if self.kind(at) == "DOT" and self.accepts(["NUMBER"]):
            self.problems.append(slips.no_digit(self.tokens, token))
            return at + 1
        if self.kind(at) == "COMMA" and at and self.kind(at - 1) == "NUMBER" and self._touches(at):
            self.problems.append(slips.comma_in_number(self.tokens, self.tokens.real[at - 1]))
            return at + 2
        return None

    def _set(self, at: int) -> int | None:
        """Mend `token in ["a", "b"]`."""
        kind = self.kind(at)
        if kind not in ("LSQB", "LPAR") or not self.accepts(["LBRACE", self.kind(at + 1)]):
            return None
        ends = {"LSQB": "RSQB", "LPAR": "RPAR"}[kind]
        closer = self._closer(at, kind, ends)
        if self.kind(at - 1) != "IN" or closer is None:
            return None
        tokens, token = self.tokens, self.tokens.real[at]
        self.problems.append(slips.braces(tokens, token, closer))
        tokens.kinds[token], tokens.kinds[closer] = "LBRACE", "RBRACE"
        return at

    def _block(self, at: int) -> int | None:
        """Mend `at small:`."""
        if self.kind(at) != "COLON" or not self.accepts(["LBRACE", self.kind(at + 1)]):
            return None
        tokens, token = self.tokens, self.tokens.real[at]
        sure = self.closes(at + 1, len(self._open(0)) + 1)
        self.problems.append(slips.opens(tokens, token, sure))
        tokens.kinds[token] = "LBRACE"
        self.excused.add(token)
        return at

    def _one_too_many(self, at: int) -> int | None:
        """Mend `commit, then large`, `commit and then large`, `use: "x"`, `at model small` and `at small { {`."""
        kind, before, coming = self.kind(at), self.kind(at - 1), self.kind(at + 1)
        if kind in ("COMMA", "AND"):
            fits = self.accepts([coming])
        elif kind in ("COLON", "ASSIGN"):
            inside = self._touches(at) and self._touches(at + 1)  # as in `demo:small`
            fits = not inside and self.accepts([coming])
        elif kind in ("MODEL", "AT"):
            block = kind == "AT" and self.kind(at + 2) in (
                "LBRACE",
                "COLON",
            )  # then a name is missing before it
            fits = before in _WHO and not block and not self.first_of_line(at)
            fits = fits and self.accepts([coming])
        else:
            fits = kind == "LBRACE" == before and self.accepts([coming])
        if not fits:
            return None
        self.problems.append(slips.superfluous(self.tokens, self.tokens.real[at]))
        return at + 1

    def without_to(self, at: int) -> bool:
        """Mend `retry to large`, as long as `to` is not reduced; return whether it was that."""
        token, before = self.tokens.real[at], self.tokens.real[at - 1]
        if self.text(at - 1) not in _FILLERS or (self.kind(at), self.kind(at - 1)) != (
            "NAME",
            "NAME",
        ):
            return False
        if self.values[-1] != before or self.kind(at - 2) not in _WHO:
            return False
        self.problems.append(slips.superfluous(self.tokens, before))
        self.values[-1] = self.firsts[-1] = self.lasts[-1] = token
        return True

    def _when(self, at: int) -> int | None:
        """Mend a rule that begins with its condition."""
        kind, coming = self.kind(at), self.kind(at + 1)
        if kind not in ("NAME", "NOT") or (kind == "NAME" and coming not in _BEHIND_A_VALUE):
            return None
        if self.accepts([kind]) or not self.accepts(["WHEN", kind, coming]):
            return None
        text = self.text(at)
        if text in expected.SYNONYMS or nearest(text, ("when", "otherwise")) is not None:
            return None  # a word stands there, and not the one
        self.problems.append(slips.no_when(self.tokens, self.tokens.real[at]))
        self._insert("WHEN", self.tokens.real[at])
        return at

    def _missing(self, at: int) -> int | None:
        """Mend a sign that is missing before a token, where only one can be."""
        kind, token = self.kind(at), self.tokens.real[at]
        signs = [sign for sign in INSERTABLE if self.accepts([sign, kind])]
        if "ASSIGN" in signs and self.accepts(["COMPARE"]):
            signs.remove("ASSIGN")  # in a condition it compares nothing
        if len(signs) > 1:
            signs = [sign for sign in signs if self.accepts([sign, kind, self.kind(at + 1)])]
        if len(signs) != 1:
            return None
        (sign,) = signs
        if kind == "NAME" and not self.accepts([sign, kind, self.kind(at + 1)]):
            return None
        if sign == "RBRACE":
            brace = self._open(0)[-1]
            if brace not in self.excused:
                self.problems.append(expected.unclosed(self.tokens, [brace], token))
            self._insert("RBRACE", token)
            return at
        if not at:
            return None
        lost = sign == "RPAR" and self._in_call()  # where its arguments end nobody knows
        sure = not lost and (sign != "LBRACE" or self.closes(at, len(self._open(0)) + 1))
        before = self.tokens.real[at - 1]
        self.problems.append(slips.missing(self.tokens, before, token, sign, sure))
        if lost:
            return self.skip(at)
        self._insert(sign, token)
        if sign == "LBRACE":
            self.excused.add(token)
        return at

    def _in_call(self) -> bool:
        """Return whether the innermost open parenthesis is that of a call."""
        kinds = self.tokens.kinds
        opener = next(
            at
            for at in range(len(self.states) - 1, 0, -1)
            if self.firsts[at] == self.lasts[at] and kinds[self.firsts[at]] == "LPAR"
        )
        return kinds[self.lasts[opener - 1]] == "NAME"

    def _respell(self, at: int) -> int | None:
        """Take a name for the word of the language that it is by all likelihood."""
        if self.kind(at) != "NAME":
            return None
        token, text, coming = self.tokens.real[at], self.text(at), self.kind(at + 1)
        if text == "else" and self.text(at + 1) == "if" and self.accepts(["WHEN"]):
            self.problems.append(slips.else_if(self.tokens, token, self.tokens.real[at + 1]))
            self.tokens.kinds[token] = "WHEN"
            del self.tokens.real[at + 1]
            return at
        fitting = [
            word
            for word, terminal in self.table.words.items()
            if word not in expected.PLANNED and self.accepts([terminal, coming])
        ]
        other = expected.SYNONYMS.get(text)
        near = other if other in fitting else nearest(text, fitting)
        if near is None:
            return None
        problem = expected.unexpected(self, token, bool(self._open(0)))
        sure = near in (other, text.lower()) or self.first_of_line(at)
        if sure and problem.code == "TR0201":
            problem = slips.respelt(problem, near)
        self.problems.append(problem)
        self.tokens.kinds[token] = self.table.words[near]
        return at

    def _closer(self, at: int, opens: str = "LBRACE", closes: str = "RBRACE") -> int | None:
        """Return the bracket that closes one at a place; None where there is none."""
        depth, kinds = 0, self.tokens.kinds
        for token in self.tokens.real[at:]:
            depth += (kinds[token] == opens) - (kinds[token] == closes)
            if depth == 0:
                return token
        return None

    def closes(self, at: int, depth: int) -> bool:
        """Return whether that many `}` without their `{` come before the next declaration."""
        kinds = self.tokens.kinds
        for token in self.tokens.real[at:]:
            if kinds[token] in TOP:
                return False
            depth += (kinds[token] == "LBRACE") - (kinds[token] == "RBRACE")
            if depth == 0:
                return True
        return False

    @abstractmethod
    def skip(self, at: int) -> int:
        """Drop the statement at hand; return where to go on."""
