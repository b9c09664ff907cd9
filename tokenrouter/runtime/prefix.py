"""The prefix cache: full pages found again by the tokens that they and all pages before them hold.

A tree over pages: a node is (parent page, the page's tokens) -> page. Nothing is hashed away, so two prefixes are never
confused. Pages are shared, never copied; only full ones enter, so nobody writes to a shared page.

A pool may spare memory: kept prefixes give way before pages that nobody has written to are used. One that is asked for again
soon after it gave way was worth such a page, so the pool spares a page less for each. Requests that come back in turn would else find
nothing as soon as they have a little more than what is kept: the oldest goes first, and is the next one to be asked for. What is remembered of
pages that are gone is a hash of their tokens; two that share one make the pool spare a page less than it might.

INVARIANT: whoever holds a page holds its parents, so a page that nobody holds has no child that somebody does, and
releasing the deepest first makes the oldest kept page a leaf.
"""

from __future__ import annotations

from tokenrouter.runtime.pool import PagePool

Key = tuple[int, tuple[int, ...]]  # page of the parent, -1 at the root; tokens of the page


class PrefixCache:
    """Pages by content, over one pool."""

    def __init__(self, pool: PagePool, page_size: int) -> None:
        self.pool = pool
        self.page_size = page_size
        self._page: dict[Key, int] = {}
        self._key: dict[int, Key] = {}
        self._content: dict[int, int] = {}  # hash of the tokens of a page and all before it
        self._gone: dict[int, None] = {}  # contents that gave way to spare memory, oldest first
        pool.on_evict = self._forget

    def match(self, tokens: list[int], limit: int) -> list[int]:
        """Hold and return the pages of the longest cached prefix of `tokens[:limit]`."""
        pages: list[int] = []
        parent = -1
        for end in range(self.page_size, limit + 1, self.page_size):
            page = self._page.get((parent, tuple(tokens[end - self.page_size : end])))
            if page is None:
                break
            pages.append(page)
            parent = page
        self.pool.hold(pages)
        if self._gone:
            self._ask_again(tokens[len(pages) * self.page_size : limit], parent)
        return pages

    def insert(self, tokens: list[int], pages: list[int], first: int, last: int) -> None:
        """Let others find pages `first` to `last` (exclusive), which are full, of a sequence that holds them.

        Where other pages with the same content are known already, these stay private, and so does what follows.
        """
        size = self.page_size
        for at in range(first, last):
            parent = pages[at - 1] if at else -1
            if parent >= 0 and parent not in self._key:
                return
            key = (parent, tuple(tokens[at * size : (at + 1) * size]))
            if self._page.setdefault(key, pages[at]) != pages[at]:
                return
            self._key[pages[at]] = key
            self._content[pages[at]] = self._hash(parent, key[1])
            self.pool.keep(pages[at])

    def _hash(self, parent: int, tokens: tuple[int, ...]) -> int:
        return hash((self._content[parent] if parent >= 0 else 0, tokens))

    def _ask_again(self, tokens: list[int], parent: int) -> None:
        """Let the pool spare a page less for each that a pool which spares none would still have had, of `tokens` behind a page."""
        size = self.page_size
        content = self._content[parent] if parent >= 0 else 0
        for end in range(size, len(tokens) + 1, size):
            content = hash((content, tuple(tokens[end - size : end])))
            if content not in self._gone:
                return
            del self._gone[content]
            self.pool.spare_less()

    def _forget(self, page: int) -> None:
        del self._page[self._key.pop(page)]
        self._gone[self._content.pop(page)] = None
        while len(self._gone) > self.pool.n_unwritten:
            del self._gone[next(iter(self._gone))]
