"""Hold the models of a policy against each other: they must speak of the same ids.

Vocabularies are compared as id -> bytes, control tokens apart, and never by the number of rows, which padding changes.
Reports:
    TR4101  two vocabularies differ
    TR4102  two models end a sequence by other ids; the union ends it here
    TR4103  two models come with other chat templates; one of them is used
    TR4104  a model has fewer rows than its tokenizer has ids
    TR4105  a model that so many ranks cannot share
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from tokenrouter.compiler.facts import Facts, Outline
from tokenrouter.compiler.ir import Automaton, ModelDecl
from tokenrouter.diagnostics import Diagnostic, Label
from tokenrouter.models.sharing import obstacle
from tokenrouter.models.vocabulary import Vocabulary

Ids = Vocabulary | Outline


def compare(auto: Automaton, facts: list[Facts]) -> list[Diagnostic]:
    """Return what is wrong between the models, each held against the first."""
    first, known = auto.models[0], facts[0]
    found: list[Diagnostic] = []
    for decl, fact in zip(auto.models, facts, strict=True):
        if fact.config.vocab_rows < fact.vocabulary.size:
            found.append(_short(decl, fact))
        if decl.tensor_parallel > 1:
            found += _unshared(decl, fact)
        if decl is not first:
            found += _pair(auto, first, known, decl, fact)
    return found


def _pair(
    auto: Automaton, first: ModelDecl, known: Facts, decl: ModelDecl, fact: Facts
) -> Iterator[Diagnostic]:
    if known.vocabulary.digest != fact.vocabulary.digest:
        difference = first_difference(known.vocabulary, fact.vocabulary)
        if difference is not None:
            yield _vocabularies(first, decl, difference, known.vocabulary, fact.vocabulary)
    if set(known.config.eos_ids) != set(fact.config.eos_ids):
        yield _ends(first, known, decl, fact)
    if known.template != fact.template:
        yield _templates(auto, first, decl)


def first_difference(a: Ids, b: Ids) -> int | None:
    """Return the first id that stands for other bytes, or is a control token in one only."""
    for id_, (x, y) in enumerate(zip_longest(a.tokens, b.tokens, fillvalue=b"")):
        if x != y or (id_ in a.special_ids) != (id_ in b.special_ids):
            return id_
    return None


def _vocabularies(first: ModelDecl, decl: ModelDecl, id_: int, a: Ids, b: Ids) -> Diagnostic:
    """TR4101."""
    return Diagnostic(
        "TR4101",
        "error",
        f"the vocabularies of `{first.name}` and `{decl.name}` differ: id {id_} is {_token(a, id_)} in "
        f"`{first.name}` and {_token(b, id_)} in `{decl.name}`",
        decl.span,
        (Label(first.span, f"`{first.name}` is declared here"),),
        help="models that write one answer together must come with the same tokenizer",
    )


def _token(vocabulary: Ids, id_: int) -> str:
    """Return what an id stands for, in backticks."""
    raw = vocabulary.tokens[id_] if id_ < len(vocabulary.tokens) else b""
    if not raw:
        return "no token"
    text = repr(raw.decode("utf-8")) if _is_text(raw) else repr(raw)
    return f"`{text}`" + (" (a control token)" if id_ in vocabulary.special_ids else "")


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _ends(first: ModelDecl, known: Facts, decl: ModelDecl, fact: Facts) -> Diagnostic:
    """TR4102."""
    return Diagnostic(
        "TR4102",
        "warning",
        f"`{first.name}` ends a sequence by {_ids(known)} and `{decl.name}` by {_ids(fact)}; here any of them ends it",
        decl.span,
        (Label(first.span, f"`{first.name}` is declared here"),),
        help="nothing to do if both mean the end; else mend the model's generation config",
    )


def _ids(fact: Facts) -> str:
    return " and ".join(map(str, sorted(fact.config.eos_ids))) or "no id"


def _templates(auto: Automaton, first: ModelDecl, decl: ModelDecl) -> Diagnostic:
    """TR4103."""
    used = auto.template_from or auto.start_model()
    return Diagnostic(
        "TR4103",
        "warning",
        f"`{first.name}` and `{decl.name}` come with different chat templates; that of `{used}` is used",
        decl.span,
        (Label(first.span, f"`{first.name}` is declared here"),),
        help="name the one that you want by `template from MODEL`",
    )


def _unshared(decl: ModelDecl, fact: Facts) -> Iterator[Diagnostic]:
    """TR4105."""
    why = obstacle(fact.config, decl.tensor_parallel)
    if why is None:
        return
    fitting = [n for n in range(decl.tensor_parallel, 0, -1) if obstacle(fact.config, n) is None]
    yield Diagnostic(
        "TR4105",
        "error",
        f"{decl.tensor_parallel} ranks cannot share `{decl.name}`: {why}",
        decl.span,
        help=f"write `tensor_parallel {fitting[0]}`"
        if fitting and fitting[0] > 1
        else "leave `tensor_parallel` out",
    )


def _short(decl: ModelDecl, fact: Facts) -> Diagnostic:
    """TR4104."""
    return Diagnostic(
        "TR4104",
        "error",
        f"`{decl.name}` has {fact.config.vocab_rows} rows for a vocabulary of {fact.vocabulary.size} ids",
        decl.span,
        help="its tokenizer belongs to another model; use the one that it was trained with",
    )
