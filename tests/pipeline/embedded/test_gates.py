"""The gates, measured on hand-made policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from envs.base import World
from pipeline.embedded import shopper
from pipeline.embedded.gates import TOLD, GateError, Gates, Measured, Sampler, check, decisions, success_rate
from pipeline.embedded.shopper import read_page, read_task

GOOD = Measured(success=0.2, greedy_success=0.8, search=1.0, row=0.9, row_shuffled=0.85, option=0.9, buy=1.0, told=0.95, tasks=300)


def right(prompts: Sequence[str], temperature: float) -> list[str]:
    """The scripted shopper, reading its window back from the prompt."""
    answers = []
    for prompt in prompts:
        task, *rest = prompt.removesuffix("\nAction: ").split("\n")
        history = [("", line.removeprefix("Last: ")) for line in rest if line.startswith("Last: ") and line != "Last: none"]
        page = read_page(rest[-1].removeprefix("Page: "))
        answers.append(shopper.right_action(read_task(task), page, history)[1])
    return answers


def test_a_right_policy_gets_everything_and_a_wrong_one_nothing(shop_world: World) -> None:
    tasks = shop_world.tasks("heldout")[:20]
    assert success_rate(right, shop_world, tasks, 1.0) == 1.0
    shares = decisions(right, shop_world, tasks)
    assert {shares[kind] for kind in ("search", "row", "option", "buy")} == {1.0}
    assert decisions(right, shop_world, tasks, "shuffled")["row"] == 1.0
    assert decisions(right, shop_world, tasks, variants=TOLD)["buy"] == 1.0

    def buys(prompts: Sequence[str], temperature: float) -> list[str]:
        return ["click[buy now]"] * len(prompts)

    assert success_rate(buys, shop_world, tasks, 1.0) == 0.0
    wrong = decisions(buys, shop_world, tasks)
    assert (wrong["search"], wrong["row"], wrong["option"], wrong["buy"]) == (0.0, 0.0, 0.0, 1.0)
    assert decisions(buys, shop_world, tasks, variants=TOLD)["buy"] == 0.0


def test_a_measurement_within_the_gates_passes() -> None:
    check(GOOD, Gates())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"success": 0.09}, r"success at temperature 1 is 9.0%, accepted 10% to 30%"),
        ({"success": 0.31}, r"success at temperature 1 is 31.0%"),
        ({"search": 0.5}, r"greedy search decisions are 50.0% right, at least 95% needed"),
        ({"row": 0.86}, r"greedy row decisions are 86.0% right, at least 87% needed"),
        ({"row_shuffled": 0.5}, r"greedy row decisions on shuffled pages are 50.0% right"),
        ({"option": 0.6}, r"greedy option decisions"),
        ({"told": 0.6}, r"greedy buy decisions in shops that name the control are 60.0% right, at least 85% needed"),
        ({"buy": 0.0, "search": 0.0}, r"misses 2 gate\(s\) on 300 held-out tasks"),
        ({"option": float("nan")}, r"greedy option decisions"),
    ],
)
def test_every_missed_gate_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GateError, match=message):
        check(replace(GOOD, **change), Gates())


def test_batched_sampling_equals_one_by_one_and_huggingface(shipped_model: Any, shipped_tokenizer: Any, shop_world: World) -> None:
    texts = [f"{task.instruction}\nLast: none\nPage: Search\nAction: " for task in shop_world.tasks("heldout")[:6]]
    texts.append(texts[0].replace("none", "search[organic tea]"))
    sampler = Sampler(shipped_model, shipped_tokenizer, seed=0)
    together = sampler(texts, 0.0)
    assert together == [sampler([text], 0.0)[0] for text in texts]
    for text, answer in zip(texts, together, strict=True):
        ids = torch.tensor([shipped_tokenizer.encode(text)])
        out = shipped_model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)
        assert shipped_tokenizer.decode(out[0, ids.shape[1] :]) == answer


def test_sampling_repeats_for_a_seed(shipped_model: Any, shipped_tokenizer: Any, shop_world: World) -> None:
    texts = [f"{task.instruction}\nLast: none\nPage: Search\nAction: " for task in shop_world.tasks("heldout")[:40]]
    first, again, other = (Sampler(shipped_model, shipped_tokenizer, seed)(texts, 1.0) for seed in (1, 1, 2))
    assert first == again != other
