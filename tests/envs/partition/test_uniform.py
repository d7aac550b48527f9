"""Uniform partition: bit-equal to the published rule (hashes from running it), and its bounds."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.partition import even_slices, uniform_slices

# (tasks, minimum) -> first 16 hex digits of sha256 over the comma-joined indices of a client, of 100 clients
GOLDEN = {
    (6410, 100): {0: "3aab9a67460ed56a", 1: "d7cbe0dd2b8e8833", 7: "bc8c0dd26d7eba54", 42: "cbeea76591abaf98", 99: "88030c971d0b6f14"},
    (6410, 500): {0: "0c107320ad64414b", 1: "0c107320ad64414b", 7: "3cec1bd4c7f1b905", 42: "d949836802569876", 99: "4bcc9a1e4ec47e24"},
    (6410, 1000): {0: "a1002f575c7074b1", 1: "a1002f575c7074b1", 7: "a1002f575c7074b1", 42: "d3a6baa30c30119a", 99: "28da32bd709f815f"},
    (3553, 100): {0: "3aab9a67460ed56a", 1: "e18b85c85c2ffdfb", 7: "9f25462e068083ff", 42: "7c066676c9051a3f", 99: "b7db741393b2f27b"},
}


@pytest.mark.parametrize(("n", "minimum"), GOLDEN)
def test_equals_the_published_rule(n: int, minimum: int) -> None:
    slices = uniform_slices(n, 100, minimum)
    found = {c: hashlib.sha256(",".join(map(str, slices[c])).encode()).hexdigest()[:16] for c in GOLDEN[n, minimum]}
    assert found == GOLDEN[n, minimum]


def test_covers_every_task_with_100_clients_of_100() -> None:
    assert len({i for part in uniform_slices(6410, 100, 100) for i in part}) == 6410


def test_wide_slices_are_disjoint_and_keep_the_natural_size() -> None:
    assert uniform_slices(11, 3, 2) == [range(0, 3), range(3, 6), range(6, 9)]


def test_widening_goes_to_the_other_side_at_the_ends() -> None:
    # base 2, widened to 5: one more on the left, two more on the right, shifted at both ends
    assert uniform_slices(8, 4, 5) == [range(0, 5), range(1, 6), range(3, 8), range(3, 8)]


@given(n=st.integers(1, 400), clients=st.integers(1, 60), minimum=st.integers(1, 400))
def test_slices_lie_in_the_list_and_are_large_enough(n: int, clients: int, minimum: int) -> None:
    if n < minimum:
        with pytest.raises(ValueError, match=f"only {n}"):
            uniform_slices(n, clients, minimum)
        return
    slices = uniform_slices(n, clients, minimum)
    assert len(slices) == clients
    for number, part in enumerate(slices):
        assert 0 <= part.start
        assert part.stop <= n
        assert len(part) == max(minimum, n // clients)
        own = range(number * (n // clients), (number + 1) * (n // clients))
        assert set(own) <= set(part)


@given(n=st.integers(1, 400), clients=st.integers(1, 60), size=st.integers(1, 400))
def test_even_slices_share_the_tasks_out_evenly(n: int, clients: int, size: int) -> None:
    if n < size:
        with pytest.raises(ValueError, match=f"only {n}"):
            even_slices(n, clients, size)
        return
    slices = even_slices(n, clients, size)
    owners = np.bincount(np.concatenate(slices), minlength=n)
    assert [len(set(part.tolist())) for part in slices] == [size] * clients
    assert int((owners > 0).sum()) == min(n, clients * size)
    if clients * size > n:
        assert owners.max() - owners.min() <= 2


def test_no_neighbours_share_more_than_others() -> None:
    """The published slices are pushed together at the ends of the list; these are not."""
    shared = [len(set(a.tolist()) & set(b.tolist())) for a, b in pairwise(even_slices(2180, 100, 50))]
    assert set(shared) <= {28, 29}
    published = uniform_slices(2180, 100, 50)
    assert len(set(published[0]) & set(published[1])) == 43
