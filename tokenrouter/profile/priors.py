"""What is assumed of requests that nobody counted. Everything made from these numbers is `assumed` or `analytic` in a plan."""

MEAN_TOKENS = 256.0  # of a request's output
ASSUMED_STAY = 8.0  # tokens of a borrowed stay whose length depends on the request
UNTIL_SHARE = (
    0.5  # share of the most tokens that a stay with `until` is assumed to last, on average
)
