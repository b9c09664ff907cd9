"""What a server's start costs is what it imports: the front end waits for nothing that only models need."""

from pathlib import Path


def test_the_front_end_runs_without_torch(server):
    maps = Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")

    assert "python" in maps
    assert "libtorch" not in maps
