"""Pages and prefixes: nothing is lost, nothing is given twice, nothing is found under the wrong tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenrouter.runtime.pool import PagePool
from tokenrouter.runtime.prefix import PrefixCache

SIZE = 2


def test_pages_come_back():
    pool = PagePool(3)
    pages = pool.take(2)

    pool.release(pages)

    assert (pool.available, pool.n_kept) == (3, 0)
    pool.check([])


def test_more_than_there_is_is_our_mistake():
    with pytest.raises(AssertionError):
        PagePool(2).take(3)


def test_a_prefix_is_found_by_its_tokens_and_all_before_them():
    pool = PagePool(8)
    cache = PrefixCache(pool, SIZE)
    first, second = [1, 2, 3, 4, 5, 6], [9, 9, 3, 4, 5, 6]
    pages = pool.take(3)
    cache.insert(first, pages, 0, 3)

    assert cache.match(first, 5) == pages[:2]
    assert cache.match(first, 6) == pages
    assert cache.match(second, 6) == []
    pool.check([pages, pages[:2], pages])


def test_the_deepest_page_is_evicted_first():
    pool = PagePool(3)
    cache = PrefixCache(pool, SIZE)
    tokens = [1, 2, 3, 4, 5, 6]
    pages = pool.take(3)
    cache.insert(tokens, pages, 0, 3)
    pool.release(pages)

    taken = pool.take(1)

    assert taken == pages[2:]
    assert cache.match(tokens, 6) == pages[:2]


def test_a_page_that_somebody_holds_is_never_evicted():
    pool = PagePool(2)
    cache = PrefixCache(pool, SIZE)
    pages = pool.take(1)
    cache.insert([1, 2], pages, 0, 1)
    held = cache.match([1, 2], 2)
    pool.release(pages)

    assert pool.available == 1
    assert held == pages


def test_equal_pages_of_two_sequences_stay_apart_and_both_come_back():
    pool = PagePool(4)
    cache = PrefixCache(pool, SIZE)
    one, two = pool.take(2), pool.take(2)
    cache.insert([1, 2, 3, 4], one, 0, 2)
    cache.insert([1, 2, 3, 4], two, 0, 2)

    pool.release(one)
    pool.release(two)

    assert (pool.n_free, pool.n_kept) == (2, 2)
    pool.check([])


def test_beyond_what_may_be_kept_a_prefix_gives_way_before_a_page_that_was_never_used():
    pool = PagePool(6, spared=3)
    cache = PrefixCache(pool, SIZE)
    first = pool.take(3)
    cache.insert([1, 2, 3, 4, 5, 6], first, 0, 3)
    pool.release(first)

    assert pool.take(1) == first[2:]
    assert (pool.n_free, pool.n_kept, pool.available) == (3, 2, 5)


def test_requests_that_are_served_may_use_every_page():
    pool = PagePool(6, spared=3)

    assert sorted(pool.take(6)) == [0, 1, 2, 3, 4, 5]


def test_up_to_what_may_be_kept_no_prefix_gives_way():
    pool = PagePool(6, spared=3)
    cache = PrefixCache(pool, SIZE)
    first = pool.take(2)
    cache.insert([1, 2, 3, 4], first, 0, 2)
    pool.release(first)

    assert pool.take(1) == [2]
    assert cache.match([1, 2, 3, 4], 4) == first


def read(cache: PrefixCache, tokens: list[int]) -> int:
    """Serve one request, and return how many of its pages were found."""
    pool = cache.pool
    pages = cache.match(tokens, len(tokens))
    found = len(pages)
    pages += pool.take(len(tokens) // SIZE - found)
    cache.insert(tokens, pages, found, len(pages))
    pool.release(pages)
    return found


def test_requests_that_come_back_in_turn_are_found_though_they_need_more_than_half_of_the_pool():
    cache = PrefixCache(PagePool(12, spared=6), SIZE)
    circle = [[10 + at] * 2 + [at, 1, at, 2, at, 3] for at in range(2)]  # 8 pages in all

    rounds = [[read(cache, tokens) for tokens in circle] for _ in range(4)]

    assert rounds[0] == [0, 0]
    assert rounds[-1] == [4, 4]
    cache.pool.check([])


def test_prompts_that_nobody_asks_for_again_take_no_more_than_what_may_be_kept():
    cache = PrefixCache(PagePool(12, spared=6), SIZE)

    for at in range(40):
        read(cache, [at, 1, at, 2, at, 3])

    assert cache.pool.n_unwritten == 6


def test_a_prompt_that_comes_again_when_the_whole_pool_would_have_lost_it_too_takes_no_more_memory():
    cache = PrefixCache(PagePool(12, spared=6), SIZE)

    for at in range(40):
        read(cache, [at % 5, 1, at % 5, 2, at % 5, 3])  # 15 pages in a circle

    assert cache.pool.n_unwritten == 6


def test_who_waits_and_asks_over_and_over_makes_the_pool_spare_no_page_twice():
    cache = PrefixCache(PagePool(12, spared=3), SIZE)
    read(cache, [1, 2, 3, 4, 5, 6])
    read(cache, [7, 8])  # the end of the other one gives way

    for _ in range(5):
        cache.pool.release(cache.match([1, 2, 3, 4, 5, 6], 6))

    assert cache.pool.spared == 4


def test_pages_that_give_way_to_what_requests_hold_are_asked_for_again_without_harm():
    pool = PagePool(6, spared=2)
    cache = PrefixCache(pool, SIZE)
    read(cache, [1, 2, 3, 4])
    held = pool.take(4)  # both kept pages, and two that were never used
    assert pool.n_unwritten == 2

    assert read(cache, [1, 2, 3, 4]) == 0
    pool.release(held)
    assert read(cache, [1, 2, 3, 4]) == 2
    assert pool.n_unwritten == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 1), min_size=1, max_size=9))),
    st.integers(0, 6),
)
def test_any_order_of_use_keeps_the_invariant_and_matches_only_true_prefixes(steps, spared):
    pool = PagePool(6, spared=spared)
    cache = PrefixCache(pool, SIZE)
    content: dict[int, tuple[int, ...]] = {}  # page -> everything up to its end
    live: list[list[int]] = []
    for drop, tokens in steps:
        if live and drop:
            pool.release(live.pop(drop % len(live)))
        pages = cache.match(tokens, len(tokens))
        for at, page in enumerate(pages):
            assert content[page] == tuple(tokens[: (at + 1) * SIZE])
        missing = -(-len(tokens) // SIZE) - len(pages)
        if missing > pool.available:
            pool.release(pages)
        else:
            known = len(pages)
            pages += pool.take(missing)
            for at in range(known, len(tokens) // SIZE):
                content[pages[at]] = tuple(tokens[: (at + 1) * SIZE])
            cache.insert(tokens, pages, known, len(tokens) // SIZE)
            live.append(pages)
        pool.check(live)
    for pages in live:
        pool.release(pages)
    assert pool.n_free + pool.n_kept == pool.total
