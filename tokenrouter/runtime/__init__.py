"""The runtime: subservers, schedulers and the engine that drive a plan."""
