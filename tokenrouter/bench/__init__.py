"""`trc bench`: load on a server, what clients see of it, and the same policy without this project for comparison.

It knows nothing of the runtime's inside: everything is measured over HTTP, as any client would. docs/bench.md defines
each figure.
"""
