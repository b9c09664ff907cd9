"""What `routed.py` measures: pairs of models, and policies over them."""

from __future__ import annotations

from typing import NamedTuple

ALONE = "alone"


class Pair(NamedTuple):
    """Two models of one vocabulary."""

    small: str
    large: str
    cost: float  # of a token of the large one, in tokens of the small one
    entropy: float  # nats, above which a token is uncertain: so that large writes about a third of the tokens


PAIRS = {
    "demo": Pair("demo:small", "demo:large", 2.7, 4.5),
    "0.6b+1.7b": Pair("dummy:qwen3-0.6b", "dummy:qwen3-1.7b", 2.9, 7.3),
    "0.6b+4b": Pair("dummy:qwen3-0.6b", "dummy:qwen3-4b", 6.8, 7.3),
}
MODELS = """route 1
model small {{ use "{small}"  {weights}  cost 1 }}
model large {{ use "{large}"  {weights}  cost {cost} }}
"""
WEIGHTS = {  # by `--dtype`: what a model's block says
    "bfloat16": "dtype bfloat16",
    "float32": "dtype float32",
    "int8": "dtype bfloat16  quantize int8",
}
BY_CHANCE = """
policy by_chance {{
  start small
  at small {{
    when chance < {p}% -> retry large
    otherwise -> commit
  }}
  at large {{
    otherwise -> commit then small
  }}
}}
"""
STITCH = """
policy stitch {{
  start small
  at small {{
    when entropy > {entropy} -> retry large
    otherwise -> commit
  }}
  at large {{
    when entropy <= {entropy} -> commit then small
    otherwise -> commit
  }}
}}
"""
MIXTURE = """
policy mixture {
  start mix { small: 0.7  large: 0.3 }
  at any {
    otherwise -> commit then mix { small: 0.7  large: 0.3 }
  }
}
"""
ONLY = """
policy only_{name} {{
  start {name}
  at {name} {{
    otherwise -> commit
  }}
}}
"""
POLICIES = {
    "p05": BY_CHANCE.format(p=5),
    "p10": BY_CHANCE.format(p=10),
    "p35": BY_CHANCE.format(p=35),
    "mixture": MIXTURE,
    "stitch": STITCH,
}
SIGNALS = {"stitch"}  # read what other engines do not tell


def source(pair: str, policy: str, dtype: str) -> str:
    """Return the text of a policy over a pair, with weights of a kind (`WEIGHTS`)."""
    models = PAIRS[pair]
    lines = MODELS.format(**models._asdict(), weights=WEIGHTS[dtype]).splitlines()
    if not policy.startswith(f"{ALONE}:"):
        text = POLICIES[policy]
        return "\n".join(lines) + (
            text.format(entropy=models.entropy) if policy in SIGNALS else text
        )
    name = policy.partition(":")[2]
    own = [line for line in lines if line.startswith(("route", f"model {name} "))]
    return "\n".join(own) + ONLY.format(name=name)
