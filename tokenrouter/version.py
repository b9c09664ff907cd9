"""The version, where whoever needs only this can read it without reaching for the rest."""

__version__ = "0.1.0"
