"""From a resolved policy to a plan."""
