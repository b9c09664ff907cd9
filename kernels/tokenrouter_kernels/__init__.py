"""Kernels and their torch references: the only place that chooses between the two."""
