"""What editors know of the language without the server, written from its tables; `tools/editors.py` writes the files."""
