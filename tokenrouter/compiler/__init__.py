"""From a resolved policy to a plan: lower -> passes -> programs, task graphs -> emit.

It knows nothing of torch and starts no model. `analyse.analyse` needs no model files; `compile.compile_policy` does.
"""
