"""The plan: structs, hashes, JSON Schema, reading and writing, verification, text form.

It knows nothing of policy source, of torch, and of who compiles or runs a plan.
"""
