"""The page allocator of one subserver's KV pool: who holds which page, and which pages can be had.

It knows nothing of tensors or tokens. A page is held by one or more sequences, or it is kept by the prefix cache with
nobody holding it, or it is free. Memory on a CPU is taken from the machine by the first who writes there: once `spared` pages have
been given to somebody, cached prefixes give way before any other page is. What requests hold may fill the pool all the same, and
so may prefixes that are asked for again after they gave way (`PrefixCache`).

INVARIANT: held + kept + free == total; after the last request, free + kept == total.
"""

from __future__ import annotations

from collections.abc import Callable


class PagePool:
    """Pages with reference counts; those that the prefix cache keeps are given up oldest first."""

    def __init__(
        self,
        total: int,
        on_evict: Callable[[int], None] = lambda page: None,
        spared: int | None = None,  # all where None
    ) -> None:
        assert total > 0, total
        self.total = total
        self.spared = total if spared is None else spared
        self.on_evict = on_evict  # told of each page that the prefix cache loses
        self._given = 0  # pages that somebody ever held: all below this one
        self._back: list[int] = []  # of them, those that are free again
        self._refs = [0] * total
        self._cached: set[int] = set()  # pages known to the prefix cache, held or not
        self._kept: dict[int, None] = {}  # cached and held by nobody, oldest first

    @property
    def available(self) -> int:
        """Pages that `take` can give now."""
        return self.n_free + len(self._kept)

    @property
    def n_free(self) -> int:
        """Pages without content."""
        return len(self._back) + self.n_unwritten

    @property
    def n_unwritten(self) -> int:
        """Pages that nobody ever held, for which no memory was taken."""
        return self.total - self._given

    @property
    def n_kept(self) -> int:
        """Pages that only the prefix cache keeps."""
        return len(self._kept)

    def take(self, n: int) -> list[int]:
        """Return `n` pages, each held once; cached prefixes give way where nothing is free."""
        assert n <= self.available, (n, self.available)
        pages = []
        for _ in range(n):
            page = self._next()
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
                self._back.append(page)

    def spare_less(self) -> None:
        """Let one more page that nobody ever held be used before cached prefixes give way."""
        self.spared = min(self.total, max(self.spared, self._given) + 1)

    def _next(self) -> int:
        if self._back:
            return self._back.pop()
        if self._given == self.total or (self._kept and self._given >= self.spared):
            return self._evict()
        self._given += 1
        return self._given - 1

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
        assert len(held) + self.n_free + len(self._kept) == self.total, (
            f"{len(held)} held + {self.n_free} free + {len(self._kept)} kept != {self.total} pages"
        )
        assert len(set(self._back)) == len(self._back) and not held & set(self._back)
        assert not held & set(self._kept) and set(self._kept) <= self._cached
