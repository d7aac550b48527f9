"""The parameter server as a plain object: takes client updates in any order, folds them in one order, names the new global state.

Owns order, weighting, the checks of an update against the global state, and the round's scalars. Knows nothing of Ray.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from envs.registry import RegistryError
from pipeline.aggregation.base import Rule
from pipeline.aggregation.drift import PolicyDrift, UpdateDrift, policy_norm
from pipeline.aggregation.mean import StreamingMean, squared_norm
from pipeline.episodes import ClientUpdate, FloatArray, GlobalState, State
from pipeline.errors import AggregationError, ConfigError
from pipeline.models import CRITIC, join_critic, split_critic, state_hash
from pipeline.plugins import RULES
from pipeline.privacy_boundary import check as check_boundary
from pipeline.privacy_boundary import check_policy

Weighting = Literal["uniform", "tasks", "episodes", "tokens"]

_COUNTS: Mapping[str, str] = {"tasks": "n_tasks", "episodes": "n_episodes", "tokens": "n_tokens"}


def version_name(round: int, state: State) -> str:
    """``global-<round>-<12 hex digits of the content>``."""
    return f"global-{round}-{state_hash(state)}"


def make_rule(rule: str, lora_alpha: float = 1.0, options: Mapping[str, Any] | None = None) -> Rule:
    """A rule by name. ``lora_alpha`` is the adapter's scale, which ``merge`` needs; ``options`` are those of a plug-in's rule.

    Raises ``ConfigError`` for an unknown name, and for options that the rule does not take.
    """
    try:
        made = RULES.get(rule)
    except RegistryError as error:
        raise ConfigError(f"aggregation.rule = {rule!r}: {error}") from error
    if rule in RULES.own:
        return made(lora_alpha) if rule == "merge" else made()
    try:
        return made(**(options or {}))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"aggregation.options = {dict(options or {})} of rule {rule!r}: {error}") from error


def make_aggregator(
    rule: str, weighting: Weighting = "uniform", *, lora_alpha: float = 1.0, options: Mapping[str, Any] | None = None
) -> Aggregator:
    """The aggregator of a run."""
    return Aggregator(make_rule(rule, lora_alpha, options), weighting)


class Aggregator:
    """Rounds of ``begin``, ``add`` or ``skip`` for each client, ``finish``.

    The result does not depend on the order of arrival, to the bit: updates are folded in the order in which ``begin`` named the clients,
    and one that arrives early is held (not copied) until those before it reported or were skipped. Otherwise nothing is kept of a
    client, so memory does not depend on how many there are.

    A critic, where the state holds one, is averaged array by array whatever the rule, and counts in no norm: rules see policies alone.
    """

    def __init__(self, rule: Rule, weighting: Weighting = "uniform") -> None:
        self.rule = rule
        self.weighting = weighting
        self._version: GlobalState | None = None

    def begin(self, version: GlobalState, clients: Sequence[str], policy: FloatArray | None = None) -> None:
        """Open the round after ``version`` for ``clients``; a round that was open is dropped. Raises ``AggregationError``.

        ``policy`` are the log-probabilities of ``version`` on the shared prompts [positions, vocabulary]; with it clients send theirs.
        """
        if len(set(clients)) != len(clients) or not clients:
            raise AggregationError(f"round {version.round + 1}: a round needs clients, each once; got {list(clients)[:10]}")
        for name, value in version.state.items():
            if value.dtype != np.float32:
                raise AggregationError(f"{version.version}: {name} is {value.dtype}, the global state is float32")
        own, self._critic_start = split_critic(version.state)
        self.rule.begin(own)
        self._critic = StreamingMean({name: tuple(value.shape) for name, value in self._critic_start.items()})
        self._sent = {**self.rule.sent, **{f"{CRITIC}{name}": shape for name, shape in self._critic.shapes.items()}}
        self._bytes_down = sum(value.nbytes for value in version.state.values())
        self._version = version
        self._clients = tuple(clients)
        self._waiting = list(clients)[::-1]
        self._held: dict[str, tuple[ClientUpdate, float, float, State | None]] = {}
        self._skipped: set[str] = set()
        self._weights: list[float] = []
        self._norms: list[float] = []
        self._moments: StreamingMean | None = None
        self._drift = UpdateDrift(self.rule.sent)
        self._policies = None if policy is None else PolicyDrift(policy)

    def add(self, update: ClientUpdate, moments: State | None = None) -> None:
        """Take a client's update, and its optimizer moments if the server averages those.

        Raises ``AggregationError`` naming the client, and the parameter where there is one. A refused update leaves no trace: the client
        may report again or be skipped.
        """
        version = self._open()
        who = f"client {update.client}, round {update.round}"
        self._check_sender(update.client, who)
        if update.round != version.round + 1:
            raise AggregationError(f"{who}: the open round is {version.round + 1}")
        if update.base_version != version.version:
            raise AggregationError(f"{who}: trained on {update.base_version!r}, but the round started at {version.version!r}")
        norm = self._check_delta(update, who)
        self.rule.check(who, split_critic(update.delta)[0])
        check_policy(update.policy, None if self._policies is None else self._policies.shape, who)
        weight = self._weight(update, who)
        if moments is not None:
            self._check_moments(moments, who)
        self._held[update.client] = (update, weight, norm, moments)
        self._drain()

    def skip(self, client: str) -> None:
        """``client`` will not report. Raises ``AggregationError`` when it is unknown or has reported."""
        version = self._open()
        self._check_sender(client, f"client {client}, round {version.round + 1}")
        self._skipped.add(client)
        self._drain()

    def finish(self) -> GlobalState:
        """Close the round. Raises ``AggregationError`` when a client is still expected, or none reported."""
        version = self._open()
        if self._waiting:
            raise AggregationError(f"round {version.round + 1}: {', '.join(self._waiting[::-1][:10])} neither reported nor were skipped")
        if not self._weights:
            raise AggregationError(f"round {version.round + 1}: none of the {len(self._clients)} clients reported")
        state, metrics = self.rule.finish()
        self._check_result(state, metrics, f"round {version.round + 1}, rule {self.rule.name!r}")
        if self._critic_start:
            state = join_critic(state, self._critic.added_to(self._critic_start)[0])
        for name, value in state.items():
            if not np.isfinite(value).all():
                raise AggregationError(f"round {version.round + 1}: the mean of {name} is not finite; lower learner.lr")
        self._version = None
        return GlobalState(
            version_name(version.round + 1, state), version.round + 1, state, {**metrics, **self._scalars(metrics["update_norm"])}
        )

    def mean_moments(self) -> dict[str, FloatArray] | None:
        """Weighted mean of the optimizer moments of the round that was closed last; None unless clients sent them."""
        if self._moments is None:
            return None
        return {name: self._moments.mean(name).astype(np.float32) for name in self._moments.shapes}

    def _open(self) -> GlobalState:
        if self._version is None:
            raise AggregationError("no round is open; call begin first")
        return self._version

    def _check_sender(self, client: str, who: str) -> None:
        if client not in self._clients:
            raise AggregationError(f"{who}: not one of the round's clients ({', '.join(self._clients[:10])})")
        if client in self._skipped:
            raise AggregationError(f"{who}: it was skipped before")
        if client in self._held or client not in self._waiting:
            raise AggregationError(f"{who}: it has reported already")

    def _check_delta(self, update: ClientUpdate, who: str) -> float:
        """The norm of an update that fits the global state, a critic's part left out."""
        sent = self._sent
        check_boundary(update, sent.keys())
        missing = sorted(sent.keys() - update.delta.keys())
        if missing:
            raise AggregationError(f"{who}: {len(missing)} of {len(sent)} parameters missing, the first is {missing[0]!r}")
        squares: dict[str, float] = {}
        for name, shape in sent.items():
            value = update.delta[name]
            if value.shape != shape:
                raise AggregationError(f"{who}: {name} has shape {value.shape}, the global state has {shape}")
            part = squared_norm(value)
            if not math.isfinite(part):
                bad = int(value.size - np.isfinite(value).sum())
                raise AggregationError(f"{who}: {name} has {bad} of {value.size} elements that are not finite")
            squares[name] = part
        return policy_norm(squares)

    def _check_result(self, state: State, metrics: Mapping[str, float], who: str) -> None:
        """What a rule made must have the form of what it was given: rules may come from outside."""
        if "update_norm" not in metrics:
            raise AggregationError(f"{who}: finish gave no update_norm (the norm of the mean difference)")
        for name, shape in self.rule.sent.items():
            value = state.get(name)
            if value is None or value.shape != shape or value.dtype != np.float32:
                found = "is missing" if value is None else f"is {value.dtype} {value.shape}"
                raise AggregationError(f"{who}: {name} {found}, expected float32 {shape}")

    def _check_moments(self, moments: State, who: str) -> None:
        for name, value in moments.items():
            if not np.isfinite(value).all():
                raise AggregationError(f"{who}: optimizer moment {name} is not finite")
        shapes = {name: tuple(np.shape(value)) for name, value in moments.items()}
        if self._moments is None:
            self._moments = StreamingMean(shapes)
        if shapes != self._moments.shapes:
            different = sorted(set(shapes.items()) ^ set(self._moments.shapes.items()))[0]
            raise AggregationError(f"{who}: optimizer moments do not fit those of the other clients: {different[0]} {different[1]}")

    def _weight(self, update: ClientUpdate, who: str) -> float:
        if self.weighting == "uniform":
            return 1.0
        count = _COUNTS[self.weighting]
        weight = float(getattr(update, count))
        if weight <= 0:
            raise AggregationError(f"{who}: {count} is {weight:g}, so weighting by {self.weighting} gives it no weight; skip the client")
        return weight

    def _drain(self) -> None:
        while self._waiting:
            client = self._waiting[-1]
            if client in self._held:
                update, weight, norm, moments = self._held.pop(client)
                own, critic = split_critic(update.delta)
                self.rule.fold(own, weight)
                if critic:
                    self._critic.add(critic, weight)
                self._drift.add(update.delta)
                if self._policies is not None and update.policy is not None:
                    self._policies.add(update.policy)
                if self._moments is not None and moments is not None:
                    self._moments.add(moments, weight)
                self._weights.append(weight)
                self._norms.append(norm)
            elif client not in self._skipped:
                return
            self._waiting.pop()

    def _scalars(self, update_norm: float) -> dict[str, float]:
        """Scalars about the clients; what is not defined (the cosine of a single client, say) is left out.

        ``drift_norm`` is the weighted mean norm of the updates and ``drift_ratio`` the norm of their mean over it: 1 where all pull the
        same way, about 1 / sqrt(n) where their directions have nothing to do with each other, 0 where they cancel.
        """
        weights, norms = np.array(self._weights), np.array(self._norms)
        shares = weights / weights.sum()
        mean_norm = float(shares @ norms)
        entropy = float(-(shares * np.log(shares)).sum() / math.log(len(shares))) if len(shares) > 1 else 1.0
        drift: dict[str, float | None] = {"drift_cosine": self._drift.cosine()}
        if self._policies is not None:
            drift |= {"policy_divergence": self._policies.divergence(), "policy_shift": self._policies.shift()}
        return {
            "n_clients": float(len(weights)),
            "bytes_up": float(len(weights) * sum(4 * math.prod(shape) for shape in self._sent.values())),
            "bytes_down": float(len(self._clients) * self._bytes_down),
            "drift_norm": mean_norm,
            "drift_ratio": min(update_norm / mean_norm, 1.0) if mean_norm > 0 else 0.0,
            "weight_entropy": entropy,
            **{name: value for name, value in drift.items() if value is not None},
        }
