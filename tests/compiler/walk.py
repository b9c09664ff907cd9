"""A request's walk through a policy with random signals: what an interpreter does, without models."""

from tokenrouter.compiler import programs
from tokenrouter.plan import structs as s
from tokenrouter.plan.evaluate import Request, fires, needed, values


class Walk:
    """One request; `programs` is the part of a plan that evaluation reads."""

    def __init__(self, auto, rng):
        self.programs = programs.programs(auto)
        self.rng = rng
        self.names = [decl.name for decl in auto.models]
        self.request = Request([d.value for d in auto.params], [d.value for d in auto.vars])
        self.owner = self.names.index(auto.start_model())
        self.written, self.switches, self.since, self.tried = [], 0, 0, set()
        self.home, self.left, self.until = None, 0, None
        self.asked = []  # models with the rules that fired, dropping ones too
        self.trace = []  # models with the rules that kept a token; None: borrowed

    def given(self, node):
        assert isinstance(node, s.Signal), node
        match node.name:
            case "position":
                return float(len(self.written))
            case "count":
                return float(self.written.count(node.args[0]))
            case "switches":
                return float(self.switches)
            case "since_switch":
                return float(self.since)
            case "chance":
                return self.rng.random()
            case "entropy":
                return self.rng.random() * 5
            case name:
                raise AssertionError(name)

    def commit(self, rule=None):
        self.written.append(self.owner)
        self.trace.append((self.owner, rule))
        self.tried.clear()

    def step(self):
        """Take one step; return whether the request goes on."""
        before = self.owner
        goes_on = self.borrowed() if self.home is not None else self.own()
        self.since = 0 if self.owner != before else self.since + 1
        self.switches += self.owner != before
        return goes_on

    def borrowed(self):
        ended = False
        if self.until is not None:
            node = self.programs[self.owner].untils[self.until]
            ended = values(self, self.owner, self.request, self.given, [node])[node]
        self.commit()
        self.left -= 1
        if self.left < 1 or ended:
            self.owner, self.home, self.until = self.home, None, None
        return True

    def own(self):
        program = self.programs[self.owner]
        found = values(self, self.owner, self.request, self.given, needed(program))
        fired = fires(program, found)
        if fired is None:
            self.commit()
            return True
        self.asked.append((self.owner, fired))
        rule = program.rules[fired]
        go = rule.go
        if not rule.keep and isinstance(go, s.To) and go.model in self.tried:
            self.commit(fired)
            return True
        if rule.keep:
            self.commit(fired)
        else:
            self.tried.add(self.owner)
        match go:
            case s.Stop():
                return False
            case s.To():
                self.owner = go.model
            case s.Mix():
                (drawn,) = self.rng.choices(go.weights, [share.weight for share in go.weights])
                self.owner = drawn.model
            case s.Borrow():
                self.home, self.owner = self.owner, go.model
                self.left, self.until = int(found[go.most]), go.until
        return True


def kept_tokens(auto, rng, most):
    """Return who wrote each token that is kept, until the request stops or `most` tokens are there."""
    walk = Walk(auto, rng)
    while len(walk.written) < most and walk.step():
        pass
    return [walk.names[model] for model in walk.written[:most]]
