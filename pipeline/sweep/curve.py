"""What a trial reports: from records of its run log to one flat row of numbers per round. Rates in [0, 1], null where not measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.variants import DEFAULT

PASSED_ON = (
    "loss", "kl", "entropy", "clip_fraction", "drift_cosine", "drift_norm", "drift_ratio", "policy_divergence", "policy_shift", "tokens",
)  # fmt: skip
"""Numbers of a round's record that are reported as they are."""

FINAL = ("start", "control", "worlds_mean", "worlds_worst", "success")
"""Rates that a summary shows."""


class Curve:
    """Collects a run's records. Feeding a round again, as a resumed run does, replaces it."""

    def __init__(self) -> None:
        self._worlds: dict[str, str] = {}
        self._episodes: dict[int, int] = {}
        self._measured: dict[int, dict[str, float]] = {}
        self._rounds: dict[int, Mapping[str, Any]] = {}

    def feed(self, record: Mapping[str, Any]) -> None:
        """Take a record of any kind."""
        kind = record.get("kind")
        if kind == "start":
            self._worlds = dict((record.get("plan") or {}).get("worlds_per_client") or {})
            back_to = record.get("resumed_from")
            last = back_to if isinstance(back_to, int) and back_to > 0 else -1
            for kept in (self._episodes, self._measured, self._rounds):
                for round in [r for r in kept if r > last]:
                    del kept[round]
        elif kind == "round":
            self._rounds[int(record["round"])] = record
            self._episodes[int(record["round"])] = int(record.get("episodes") or 0)
        elif kind == "evaluation" and not record.get("client") and record.get("mode") != "greedy":
            self._measured.setdefault(int(record["round"]), {})[str(record.get("world") or DEFAULT)] = float(record["success"])

    @property
    def round(self) -> int:
        """The last round seen; 0 before the first."""
        return max(self._rounds, default=0)

    def row(self) -> dict[str, Any]:
        """The numbers after the last round: the newest measurement of each kind, with the round that it is of."""
        last: Mapping[str, Any] = self._rounds.get(self.round, {})
        measured_round = max((r for r in self._measured if r <= self.round), default=None)
        now = {} if measured_round is None else self._measured[measured_round]
        start = self._measured.get(0, {})
        mean, worst = self._over_clients(now)
        return {
            "round": self.round,
            "episodes": sum(self._episodes.values()),
            "success": last.get("success"),
            "control": now.get(DEFAULT),
            "worlds_mean": mean,
            "worlds_worst": worst,
            "objective": mean if mean is not None else now.get(DEFAULT),
            "start": self._over_clients(start)[0],
            "measured_round": measured_round,
            "round_seconds": last.get("seconds"),
            "failed_clients": len(last.get("failed") or []),
            **{name: last[name] for name in PASSED_ON if isinstance(last.get(name), int | float)},
        }

    def _over_clients(self, rates: Mapping[str, float]) -> tuple[float | None, float | None]:
        """Mean over the clients whose world was measured, and the worst of their worlds. Alike clients live in the unperturbed one."""
        worlds = list(self._worlds.values()) or [DEFAULT]
        known = [rates[world] for world in worlds if world in rates]
        return (sum(known) / len(known), min(known)) if known else (None, None)
