"""Checks and rewrites, one a file, each a pure function from the IR."""
