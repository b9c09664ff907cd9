"""The throughput model: how fast `N` requests that circulate among models go, and which batching windows serve them best.

Source: arXiv 2610.12242, appendix D. It knows nothing of policies, plans or serving: numbers in, numbers out (numpy and
scipy only). `spec` is the border, `system` the meaning of one event, `exact` and `sampled` the two solvers.

Symbols, everywhere: N active requests; M models, index m; S stations, a station is a (model, phase) pair, index s, and
a plain model has one; P[s, j] share of the steps at s after which a request goes to j; C[s, j] tokens committed on that
way, in expectation; L_m(b) seconds of a step of b requests; B_m window; delta the quantum of time; T tokens/s.
"""
