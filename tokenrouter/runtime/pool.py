"""The page allocator of one subserver's KV pool: who holds which page, and which pages can be had.

It knows nothing of tensors or tokens. A page is held by one or more sequences, or it is kept by the prefix cache with
nobody holding it, or it is free.

INVARIANT: held + kept + free == total; after the last request, free + kept == total.
"""

from __future__ import annotations

from collections.abc import Callable


class PagePool:
    """Pages with reference counts; those that the prefix cache keeps are given up oldest first."""

    def __init__(self, total: int, on_evict: Callable[[int], None] = lambda page: None) -> None:
        assert total > 0, total
        self.total = total
        self.on_evict = on_evict  # told of each page that the prefix cache loses
        self._free = list(range(total - 1, -1, -1))
        self._refs = [0] * total
        self._cached: set[int] = set()  # pages known to the prefix cache, held or not
        self._kept: dict[int, None] = {}  # cached and held by nobody, oldest first

    @property
    def available(self) -> int:
        """Pages that `take` can give now."""
        return len(self._free) + len(self._kept)

    @property
    def n_free(self) -> int:
        """Pages without content."""
        return len(self._free)

    @property
    def n_kept(self) -> int:
        """Pages that only the prefix cache keeps."""
        return len(self._kept)

    def take(self, n: int) -> list[int]:
        """Return `n` pages, each held once; cached prefixes give way where nothing is free."""
        assert n <= self.available, (n, self.available)
        pages = []
        for _ in range(n):
            page = self._free.pop() if self._free else self._evict()
            self._refs[page] = 1
            pages.append(page)
        return pages

    def hold(self, pages: list[int]) -> None:
        """Hold cached pages once more."""
        for page in pages:
            assert page in self._cached, page
            self._kept.pop(page, None)
            self._refs[page] += 1

    def keep(self, page: int) -> None:
        """Mark a held page as known to the prefix cache, which keeps it when nobody holds it."""
        assert self._refs[page] > 0, page
        self._cached.add(page)

    def release(self, pages: list[int]) -> None:
        """Hold pages once less; give them in sequence order, since the deepest must be evicted first."""
        for page in reversed(pages):
            assert self._refs[page] > 0, page
            self._refs[page] -= 1
            if self._refs[page]:
                continue
            if page in self._cached:
                self._kept[page] = None
            else:
                self._free.append(page)

    def _evict(self) -> int:
        page = next(iter(self._kept))
        del self._kept[page]
        self._cached.remove(page)
        self.on_evict(page)
        return page

    def check(self, holders: list[list[int]]) -> None:
        """Assert the invariant, given the pages of every sequence."""
        refs = [0] * self.total
        for pages in holders:
            for page in pages:
                refs[page] += 1
        assert refs == self._refs, "reference counts and holders differ"
        held = {page for page in range(self.total) if refs[page]}
        assert len(held) + len(self._free) + len(self._kept) == self.total, (
            f"{len(held)} held + {len(self._free)} free + {len(self._kept)} kept != {self.total} pages"
        )
        assert len(set(self._free)) == len(self._free) and not held & set(self._free)
        assert not held & set(self._kept) and set(self._kept) <= self._cached
