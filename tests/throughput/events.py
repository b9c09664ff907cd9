"""A plain discrete-event simulation of the closed system, request by request: what the solvers are held against.

Written from the design page alone. It shares no code with the solvers and does by hand what they do by formula: requests
end one by one and restart, tokens are committed on the way that was taken, delays are measured with a clock.
"""

import random


class Seen:
    """Sums over one stretch of a simulation; times in milliseconds."""

    def __init__(self, n_models):
        self.time = self.tokens = 0.0
        self.busy, self.batches, self.through, self.delay = ([0.0] * n_models for _ in range(4))


class Simulation:
    """N requests that circulate among models under fixed windows."""

    def __init__(self, spec, windows, seed):
        self.spec, self.windows = spec, windows
        self.rng = random.Random(seed)
        n_models = len(spec.step_ms)
        self.model_of = spec.model_of or list(range(n_models))
        self.entry = spec.entry or [1.0] + [0.0] * (len(spec.p) - 1)
        self.rates = {
            frozenset(b.models): dict(zip(b.models, b.rates, strict=True)) for b in spec.busy
        }
        self.queue = [[] for _ in range(n_models)]  # (station, since)
        self.batch = [[] for _ in range(n_models)]  # stations
        self.left = [0.0] * n_models
        self.now = 0.0
        self.line = []  # models that wait for their turn
        self.seen = Seen(n_models)
        first = self.entry.index(max(self.entry))
        self.turn = self.model_of[first]  # whose turn it was last
        for _ in range(spec.n):
            self.arrive(first)
        self.launch()

    def draw(self, weights):
        return self.rng.choices(range(len(weights)), weights)[0]

    def arrive(self, station):
        self.queue[self.model_of[station]].append((station, self.now))

    def launch(self):
        ready = [
            m
            for m, window in enumerate(self.windows)
            if not self.batch[m] and len(self.queue[m]) >= window and m not in self.line
        ]
        if not self.spec.in_turn:
            for m in ready:
                self.begin(m, self.spec.step_ms[m])
            return
        ready.sort(key=lambda m: m != self.turn)  # the one whose step it was comes first
        self.line += ready
        if self.line and not any(self.batch):
            m = self.line.pop(0)
            own = self.turn == m or self.spec.after_ms is None
            self.turn = m
            self.begin(m, self.spec.step_ms[m] if own else self.spec.after_ms[m])

    def begin(self, m, given):
        self.batch[m] = [station for station, _ in self.queue[m]]
        self.seen.delay[m] += sum(self.now - since for _, since in self.queue[m])
        self.queue[m].clear()
        size = len(self.batch[m])
        self.left[m] = given[size - 1] if isinstance(given, list) else given

    def event(self):
        running = [m for m, batch in enumerate(self.batch) if batch]
        rate = self.rates.get(frozenset(running), {})
        tau = min(self.left[m] / rate.get(m, 1.0) for m in running)
        self.now += tau
        self.seen.time += tau
        for m in running:
            self.left[m] -= tau * rate.get(m, 1.0)
            self.seen.busy[m] += tau
        for m in running:
            if self.left[m] < 1e-6:
                self.finish(m)
        self.launch()

    def finish(self, m):
        self.seen.batches[m] += 1
        self.seen.through[m] += len(self.batch[m])
        finished, self.batch[m] = self.batch[m], []
        for station in finished:
            target = self.draw(self.spec.p[station])
            tokens = self.spec.c[station][target]
            self.seen.tokens += tokens
            mean = self.spec.mean_output_tokens
            if mean and self.rng.random() < tokens / mean:
                target = self.draw(self.entry)
            self.arrive(target)


def simulate(spec, windows, *, seed, completions, warm_up=2000, parts=30):
    """Return what was seen in each of `parts` stretches of `completions` events."""
    simulation = Simulation(spec, windows, seed)
    for _ in range(warm_up):
        simulation.event()
    out = []
    for _ in range(parts):
        simulation.seen = Seen(len(windows))
        for _ in range(completions):
            simulation.event()
        out.append(simulation.seen)
    return out


def figures(parts, of):
    """Return mean and standard error over the parts of a figure that `of` reads from one."""
    values = [of(part) for part in parts]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, (variance / len(values)) ** 0.5
