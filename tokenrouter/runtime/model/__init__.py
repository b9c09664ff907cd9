"""Models: decoder, loaders and paged attention."""
