"""Installed as `tokenrouter.pages`: one page a diagnostic, which `trc explain CODE` prints."""
