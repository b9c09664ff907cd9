"""Models on disk without their weights: where they are, what they are, which vocabulary they speak."""
