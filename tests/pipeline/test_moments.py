"""What clients keep: two optimizers' moments and a critic, joined, split and written."""

from __future__ import annotations

import numpy as np

from pipeline.moments import Moments, flatten, join, split, unflatten


def made(step: int, value: float) -> Moments:
    return Moments(step, {"w": np.full(2, value, np.float32)}, {"w": np.full(2, value**2, np.float32)})


def same(a: Moments, b: Moments) -> None:
    assert (a.step, a.critic_step) == (b.step, b.critic_step)
    for one, other in ((a.exp_avg, b.exp_avg), (a.exp_avg_sq, b.exp_avg_sq), (a.kept, b.kept)):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


def test_joined_and_split_again() -> None:
    policy, critic = made(3, 0.5), made(7, 2.0)
    both = join(policy, critic, {"head.bias": np.ones(1, np.float32)})
    assert (both.step, both.critic_step) == (3, 7)
    assert set(both.exp_avg) == {"w", "critic.w"}
    found = split(both)
    assert found[0] is not None
    assert found[1] is not None
    same(found[0], policy)
    same(found[1], critic)


def test_what_is_not_kept_is_absent() -> None:
    assert split(None) == (None, None)
    only = join(None, None, {"head.bias": np.ones(1, np.float32)})
    assert split(only) == (None, None)
    found, none = split(made(3, 0.5))
    assert none is None
    assert found is not None
    same(found, made(3, 0.5))


def test_the_flat_form_holds_everything() -> None:
    cases = [
        made(3, 0.5),
        join(made(3, 0.5), made(7, 2.0), {}),
        join(made(3, 0.5), made(0, 0.0), {"head.bias": np.ones(1, np.float32)}),
        join(None, None, {"head.bias": np.ones(1, np.float32)}),
    ]
    for moments in cases:
        flat = flatten(moments)
        assert all(value.dtype == np.float32 for value in flat.values())
        same(unflatten(flat), moments)
    assert set(flatten(made(3, 0.5))) == {"exp_avg/w", "exp_avg_sq/w", "step"}
    # A critic that has taken no step yet is still there: the server compares names between clients.
    assert "critic_step" in flatten(cases[2])
