"""The surrogate, the KL estimators and token log-probabilities, on numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pipeline.algorithms import losses
from pipeline.algorithms.kl import kl_estimate, kl_values
from pipeline.algorithms.losses import clipped_policy_loss, clipped_value_loss, token_logprobs


def surrogate(ratio: float, advantage: float, dual: float | None = 3.0) -> tuple[float, bool]:
    loss, _, clipped = clipped_policy_loss(
        torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]), low=0.2, high=0.3, dual=dual
    )
    return loss.item(), bool(clipped)


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual", "loss", "clipped"),
    [
        (1.1, 2.0, 3.0, -2.2, False),
        (1.5, 2.0, 3.0, -2.6, True),
        (0.5, 2.0, 3.0, -1.0, False),
        (0.5, -2.0, 3.0, 1.6, True),
        (1.5, -2.0, 3.0, 3.0, False),
        (9.0, -2.0, 3.0, 6.0, True),
        (9.0, -2.0, None, 18.0, False),
    ],
)
def test_clipped_surrogate(ratio: float, advantage: float, dual: float | None, loss: float, clipped: bool) -> None:
    got, was_clipped = surrogate(ratio, advantage, dual)
    assert got == pytest.approx(loss, rel=1e-5)
    assert was_clipped is clipped


def test_a_clipped_token_has_no_gradient() -> None:
    new = torch.log(torch.tensor([1.5, 1.1])).requires_grad_()
    loss, _, _ = clipped_policy_loss(new, torch.zeros(2), torch.ones(2), low=0.2, high=0.2, dual=3.0)
    loss.sum().backward()
    assert new.grad is not None
    torch.testing.assert_close(new.grad, torch.tensor([0.0, -1.1]))


def test_ratio_cannot_overflow() -> None:
    loss, ratio, _ = clipped_policy_loss(torch.tensor([0.0]), torch.tensor([-1e4]), torch.tensor([-1.0]), low=0.2, high=0.2, dual=None)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(ratio).all()


def test_kl_estimators() -> None:
    policy, anchor = torch.tensor([-1.0]), torch.tensor([-1.5])
    assert kl_estimate(policy, anchor, "k1").item() == pytest.approx(0.5)
    assert kl_estimate(policy, anchor, "k2").item() == pytest.approx(0.125)
    assert kl_estimate(policy, anchor, "k3").item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)


def test_kl_values_are_unbiased_and_only_k2_has_the_gradient_of_the_divergence() -> None:
    logits = torch.tensor([0.3, -0.4, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    anchor = torch.log_softmax(torch.tensor([-0.5, 0.2, 0.4, 0.1], dtype=torch.float64), 0)
    policy = torch.log_softmax(logits, 0)
    exact = (policy.exp() * (policy - anchor)).sum()
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    gradients = {}
    for estimator in ("k1", "k2", "k3"):
        values = kl_estimate(policy, anchor, estimator)  # type: ignore[arg-type]
        if estimator != "k2":
            assert (policy.detach().exp() * values.detach()).sum().item() == pytest.approx(exact.item())
        # Expectation over samples of the policy of the gradient of the per-sample loss.
        (gradients[estimator],) = torch.autograd.grad((policy.detach().exp() * values).sum(), logits, retain_graph=True)
    torch.testing.assert_close(gradients["k2"], wanted)
    torch.testing.assert_close(gradients["k1"], torch.zeros_like(wanted))
    assert not torch.allclose(gradients["k3"], wanted, rtol=0.05)


@pytest.mark.parametrize("moved", [0.0, 0.6])
def test_k3_unbiased_has_value_and_gradient_of_the_divergence_however_far_the_policy_moved(moved: float) -> None:
    logits = torch.tensor([0.3, -0.4, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    anchor = torch.log_softmax(torch.tensor([-0.5, 0.2, 0.4, 0.1], dtype=torch.float64), 0)
    sampler = torch.log_softmax(logits.detach() + moved * torch.tensor([1.0, -1.0, 0.5, 0.0], dtype=torch.float64), 0)
    policy = torch.log_softmax(logits, 0)
    exact = (policy.exp() * (policy - anchor)).sum()
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    expected = (sampler.exp() * kl_estimate(policy, anchor, "k3_unbiased", sampler)).sum()
    assert expected.item() == pytest.approx(exact.item())
    (found,) = torch.autograd.grad(expected, logits, retain_graph=True)
    torch.testing.assert_close(found, wanted)
    # The others lose theirs once the samples are not the policy's own.
    (k2,) = torch.autograd.grad((sampler.exp() * kl_estimate(policy, anchor, "k2")).sum(), logits)
    assert torch.allclose(k2, wanted) is (moved == 0.0)


def test_k3_unbiased_needs_the_sampler() -> None:
    with pytest.raises(ValueError, match="sampler"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k3_unbiased")


def test_kl_values_are_the_estimates_as_numbers() -> None:
    logprobs, anchor = np.array([-1.0, -2.0], np.float32), np.array([-1.5, -1.0], np.float32)
    np.testing.assert_allclose(kl_values(logprobs, anchor, "k1"), [0.5, -1.0])
    np.testing.assert_allclose(kl_values(logprobs, anchor, "k3"), [math.exp(-0.5) - 0.5, math.e - 2], rtol=1e-6)
    np.testing.assert_array_equal(kl_values(logprobs, anchor, "k3_unbiased"), kl_values(logprobs, anchor, "k3"))


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss", "clipped"),
    [
        (0.7, 0.5, 1.0, 0.5, 0.5 * 0.09, False),
        # Moved too far towards the target: the error of the value at the edge counts, and has no gradient.
        (1.0, 0.0, 1.0, 0.4, 0.5 * 0.36, True),
        # Moved too far away from it: its own error is the worse one.
        (-1.0, 0.0, 1.0, 0.4, 0.5 * 4.0, False),
        (1.0, 0.0, 1.0, None, 0.0, False),
    ],
)
def test_clipped_value_loss(value: float, old: float, target: float, clip: float | None, loss: float, clipped: bool) -> None:
    values = torch.tensor([value], requires_grad=True)
    got, was_clipped = clipped_value_loss(values, torch.tensor([old]), torch.tensor([target]), clip)
    assert got.item() == pytest.approx(loss, abs=1e-7)
    assert bool(was_clipped) is clipped
    got.sum().backward()
    assert values.grad is not None
    assert values.grad.item() == pytest.approx(0.0 if clipped else value - target)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3_unbiased"])
def test_kl_cannot_overflow(estimator: str) -> None:
    far = kl_estimate(torch.tensor([-1e6, -1.0]), torch.tensor([-1.0, -1e6]), estimator, torch.tensor([-1.0, -1e6]))  # type: ignore[arg-type]
    assert torch.isfinite(far).all()


def test_token_logprobs_and_entropy_of_a_known_distribution() -> None:
    head = torch.nn.Identity()
    hidden = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]))
    logp, entropy = token_logprobs(hidden, head, torch.tensor([1, 2]))
    torch.testing.assert_close(logp, torch.log(torch.tensor([0.25, 0.6])))
    wanted = [-(0.5 * math.log(0.5) + 0.5 * math.log(0.25)), -(0.4 * math.log(0.2) + 0.6 * math.log(0.6))]
    torch.testing.assert_close(entropy, torch.tensor(wanted))


def test_temperature_divides_the_logits() -> None:
    hidden = torch.tensor([[1.0, 3.0]])
    logp, _ = token_logprobs(hidden, torch.nn.Identity(), torch.tensor([0]), temperature=2.0)
    assert logp.item() == pytest.approx(0.5 - math.log(math.exp(0.5) + math.exp(1.5)))


def test_pieces_of_a_large_vocabulary_agree_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 50)
    hidden, targets = torch.randn(23, 8, requires_grad=True), torch.randint(0, 50, (23,))

    def run() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logp, entropy = token_logprobs(hidden, head, targets, entropy_gradient=True)
        (gradient,) = torch.autograd.grad(logp.sum() + 0.3 * entropy.sum(), hidden)
        return logp, entropy, gradient

    whole = run()
    monkeypatch.setattr(losses, "_CHUNK_ELEMENTS", 200)
    for a, b in zip(run(), whole, strict=True):
        torch.testing.assert_close(a, b)
