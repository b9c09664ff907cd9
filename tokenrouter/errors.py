"""The root of our typed exceptions: the world is wrong, and the message is one line for the user.

    TokenRouterError
    ├── diagnostics.PolicyError a policy with errors, all of them at once
    ├── plan.io.PlanError       a plan that cannot be read or does not hold together
    └── ...                     each package derives its own, beside the code that raises it

A message says what is wrong, where, and how to mend it: lower case, no full stop, no line break, user text in
backticks. `trc` prints it on stderr and exits with 1, or 2 for a UsageError; the server turns it into an OpenAI-shaped error.
Problems of a policy are diagnostics (`tokenrouter.diagnostics`), problems of ours are asserts.
"""


class TokenRouterError(Exception):
    """Something outside this program is wrong; `str(error)` is one line that says what and how to mend it."""


class UsageError(TokenRouterError):
    """The arguments of a command are wrong in a way that only the verb can tell, or name what cannot be read; exit status 2."""
