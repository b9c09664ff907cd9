"""The toys served the obvious way: one request, one token at a time, no pages, no messages.

Only what the toy plans use; the whole language has its own interpreter, `tokenrouter.runtime.reference`.
"""

import torch

from tests.runtime.toy import EOS, toy_logits
from tokenrouter.plan import structs as s
from tokenrouter.runtime.random import CHANCE, MIX, SAMPLE, uniform


def candidate(logits, sampling, position, model):
    z = torch.tensor(logits, dtype=torch.float64)
    if sampling.temperature == 0:
        return int(z.argmax())
    z, ids = torch.sort(z, descending=True, stable=True)
    p = torch.softmax(z / sampling.temperature, -1).tolist()
    p = p[: sampling.top_k or len(p)]
    total, kept = sum(p), []
    for x in p:
        if sum(kept) / total >= sampling.top_p:
            break
        kept.append(x)
    kept = [x for x in kept if x >= sampling.min_p * p[0]]
    u = uniform(sampling.seed, position, model, SAMPLE) * sum(kept)
    running = 0.0
    for at, x in enumerate(kept):
        running += x
        if running > u:
            return int(ids[at])
    return int(ids[len(kept) - 1])


def node(nodes, at, logits, sampling, position, model):
    of = nodes[at]

    def value(other):
        return node(nodes, other, logits, sampling, position, model)

    match of:
        case s.Const():
            return of.value
        case s.Not():
            return not value(of.of)
        case s.Compare(sign=">"):
            return value(of.left) > value(of.right)
        case s.Signal(name="entropy"):
            p = torch.softmax(torch.tensor(logits, dtype=torch.float64), -1)
            return float(torch.special.entr(p).sum())
        case s.Signal(name="chance"):
            return uniform(sampling.seed, position, model, CHANCE)
    raise AssertionError(of)


def draw(mix, sampling, position, model):
    u, running = uniform(sampling.seed, position, model, MIX), 0.0
    for share in mix.weights:
        running += share.weight
        if u < running:
            return share.model
    return mix.weights[-1].model


def serve(plan, prompt, sampling):
    """The output's (token, model) pairs."""
    tokens, written = list(prompt), []
    go = plan.start.rules[0].go
    owner = draw(go, sampling, 0, 0) if isinstance(go, s.Mix) else go.model
    tried, home, left, until = set(), None, 0, None
    while len(written) < sampling.max_tokens:
        position = len(written)
        logits = toy_logits(owner, tokens)
        token = candidate(logits, sampling, position, owner)
        program = plan.programs[owner]

        def holds(at, logits=logits, position=position, program=program, owner=owner):
            return at is None or node(program.nodes, at, logits, sampling, position, owner)

        keep, then, new = True, owner, None
        if home is not None:
            left -= 1
            if left == 0 or (until is not None and holds(program.untils[until])):
                then, home = home, None
        else:
            rule = next(r for r in program.rules if holds(r.when))
            keep = rule.keep
            match rule.go:
                case s.To():
                    then = rule.go.model
                    if not keep and then in tried | {owner}:
                        keep, then = True, owner
                case s.Mix():
                    then = draw(rule.go, sampling, position + 1, owner)
                case s.Borrow():
                    then = rule.go.model
                    new = (owner, int(holds(rule.go.most)), rule.go.until)
        if keep:
            tokens.append(token)
            written.append((token, owner))
            tried = set()
            if token == EOS and not sampling.ignore_eos:
                break
        else:
            tried.add(owner)
        owner = then
        if new is not None:
            home, left, until = new
    return written
