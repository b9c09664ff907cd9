"""The verbs of `trc`, one a file."""
