"""The tiny models and policies of the end-to-end tests, for the dispatcher's too."""

from tests.e2e.conftest import bench, compiled, one_thread

__all__ = ["bench", "compiled", "one_thread"]
