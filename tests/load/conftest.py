"""One real server of two tiny models for all load tests over HTTP."""

from tests.server.conftest import bench, plan_path, server

__all__ = ["bench", "plan_path", "server"]
