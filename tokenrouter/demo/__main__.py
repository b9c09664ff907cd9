"""`python -m tokenrouter.demo`: fetch the demo's large model and say where it is."""

from __future__ import annotations

import sys

from tokenrouter.demo.fetch import DemoUnavailable, fetch


def main() -> int:
    """Fetch, and print the path."""
    try:
        path = fetch()
    except DemoUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
