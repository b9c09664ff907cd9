"""The OpenAI-compatible front end."""
