"""Parts of one's own: a partition, an algorithm, an aggregation rule, and a variant family for a world that is there already."""

import numpy as np

from envs.variants import Family
from pipeline.aggregation import Rule
from pipeline.algorithms.base import Algorithm, Loss, Rows
from pipeline.plugins import PerturbedEnv, register_algorithm, register_family, register_partition, register_rule


@register_partition("neighbours")
def neighbours(tasks, clients, *, size, seed, by="instruction"):
    """Every client owns tasks whose ``by`` (instruction, category or id) are neighbours in the alphabet."""
    if by not in ("instruction", "category", "id"):
        raise ValueError(f"by = {by!r}; allowed: instruction, category, id")
    ordered = sorted(tasks, key=lambda task: (getattr(task, by), task.id))
    starts = np.linspace(0, len(ordered) - size, len(clients)).astype(int)
    return {client: [task.id for task in ordered[start : start + size]] for client, start in zip(clients, starts, strict=True)}


@register_algorithm("rloo", smallest_group=2, unused=("algorithm.clip_low", "algorithm.clip_high", "algorithm.dual_clip"))
class RLOO(Algorithm):
    """REINFORCE; the baseline is the mean return of the task's other episodes (Ahmadian et al. 2024, arXiv 2402.14740)."""

    needs_reference = needs_entropy = False

    def __init__(self, config):
        self.passes = config.passes
        self.scale = float(config.options.get("scale", 1.0))
        if self.scale <= 0:
            raise ValueError(f"scale = {self.scale:g}; allowed: more than 0")

    def rows(self, episodes):
        kept = [episode for episode in episodes if episode.stop != "failed"]
        keys = [(episode.task_id, episode.group) for episode in kept]
        groups = np.unique([repr(key) for key in keys], return_inverse=True)[1] if keys else np.zeros(0, np.int64)
        returns = np.array([episode.ret for episode in kept])
        others = np.bincount(groups, minlength=1)[groups] - 1
        baseline = (np.bincount(groups, returns, minlength=1)[groups] - returns) / np.maximum(others, 1)
        advantages = np.where(others > 0, returns - baseline, 0.0) * self.scale
        turns = [(at, turn) for at, episode in enumerate(kept) for turn in episode.turns if turn.response_ids]
        of = np.array([at for at, _ in turns], np.int64)
        return Rows(
            tokens=[np.array(turn.prompt_ids + turn.response_ids, np.int64) for _, turn in turns],
            response_lengths=np.array([len(turn.response_ids) for _, turn in turns], np.int64),
            logprobs=[np.array(turn.logprobs, np.float32) for _, turn in turns],
            advantages=advantages[of].astype(np.float32),
            episodes=of,
            groups=groups[of],
            metrics={"advantage_abs": float(np.abs(advantages).mean()) if kept else 0.0},
        )

    def loss(self, batch, logprobs, entropy, ref_logprobs):
        total = -(batch.advantages * logprobs).sum()
        return Loss(total, {"loss": total.detach(), "entropy": entropy.detach().sum()}, {})


@register_rule("trimmed_mean")
class TrimmedMean(Rule):
    """Coordinate by coordinate, the mean without the smallest and largest share ``trim`` of the clients (Yin et al. 2018)."""

    def __init__(self, trim=0.25):
        if not 0 <= trim < 0.5:
            raise ValueError(f"trim = {trim}; allowed: 0 to less than 0.5")
        self.trim = trim

    def begin(self, state):
        self.start, self.sent, self.deltas = state, {name: value.shape for name, value in state.items()}, []

    def fold(self, delta, weight):
        self.deltas.append(delta)

    def finish(self):
        cut, squared, state = int(self.trim * len(self.deltas)), 0.0, {}
        for name, start in self.start.items():
            ordered = np.sort([delta[name] for delta in self.deltas], axis=0)
            mean = ordered[cut : len(ordered) - cut].mean(axis=0, dtype=np.float64)
            squared += float((mean**2).sum())
            state[name] = (start + mean).astype(np.float32)
        return state, {"update_norm": squared**0.5}


@register_family("bandit", Family("relabelled", "dynamics", ("control", "swapped"), "arms a and b have swapped places"))
class Relabelled(PerturbedEnv):
    """Whoever pulls a gets b."""

    def act(self, action):
        return {"a": "b", "b": "a"}.get(action, action)

    @classmethod
    def plan(cls, world, task, variant, actions):
        return [{"a": "b", "b": "a"}[action] for action in actions]
