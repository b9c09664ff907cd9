"""The `.route` front end: text to a resolved, typed policy."""
