"""Token-level LLM routing: a compiler for `.route` policies and a runtime that serves their plans."""
