"""The demo pair."""
