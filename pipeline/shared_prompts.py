"""Prompts that everybody in a federation may see, on which the clients' policies are compared: held-out tasks along the oracle's path.

Owns which prompts those are. What is measured on them is ``pipeline.aggregation.drift``.
"""

from __future__ import annotations

from actors.prompting import ChatPrompter
from envs.base import World
from pipeline.config import Config
from pipeline.parts import make_prompter
from pipeline.planning import Prepared, context_limit
from pipeline.selftest import Probe

DEPTH = 3
"""Prompts are taken in turn from the first, second and third step of an episode."""
POSITIONS = 8
"""Tokens of a response that are looked at: with a real model's vocabulary every one is some hundred kilobytes per client."""


def policy_probe(prepared: Prepared) -> Probe | None:
    """The prompts of a run, as many as ``evaluation.probe_prompts`` asks for; None for 0."""
    config: Config = prepared.config
    if not config.evaluation.probe_prompts:
        return None
    limit = context_limit(config, prepared.model) - max(config.rollout.max_new_tokens, POSITIONS)
    return shared_prompts(prepared.world, make_prompter(config, prepared.model), config.evaluation.probe_prompts, limit)


def shared_prompts(world: World, prompter: ChatPrompter, count: int, limit: int) -> Probe | None:
    """``count`` prompts of the unperturbed world with the oracle's answers, or fewer where a world has fewer different ones.

    The first is the first held-out task's opening, the next the second one's after one of the oracle's steps, and so on. Those longer than
    ``limit`` tokens are left out. None when ``count`` is 0 or nothing is left.
    """
    tasks = world.tasks("heldout")
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    env = world.make() if count and tasks else None
    for i in range(count if env is not None else 0):
        assert env is not None
        task = tasks[i % len(tasks)]
        actions = world.oracle(task)
        observation, info = env.reset(options={"task": task})
        history: list[tuple[str, str]] = []
        # Once through all tasks, the next time each is taken one step deeper.
        turns = (i % len(tasks) + i // len(tasks)) % DEPTH
        for action in actions[: min(turns, len(actions) - 1)]:
            after, _, terminated, truncated, later = env.step(action)
            if terminated or truncated:
                break
            history.append((observation, action))
            observation, info = after, later
        action = actions[len(history)] if len(history) < len(actions) else next(iter(info["admissible"]), "")
        prompt = tuple(prompter.encode(task.instruction, history, observation, info["admissible"]))
        response = tuple(prompter.tokenizer.encode(action, add_special_tokens=False)[:POSITIONS])
        if response and len(prompt) <= limit:
            found.setdefault(prompt, response)
    return Probe(tuple(found), tuple(found.values())) if found else None
