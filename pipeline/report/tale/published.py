"""Published numbers that the page quotes, with figure and reading. Owns the quotations; draws no conclusions from them.

Source of all: Chen, Zhu et al., "Is Decentralized LLM Agent RL Robust to Heterogeneity? An Asymmetric Tale", build of 15 July 2026.
Figures are read as L10, the mean of the last ten points of the curve, with the standard deviation of those ten points; each curve is one
run, scored on the unperturbed world. Tables give the mean and standard deviation over three seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SOURCE = "Chen, Zhu et al., Is Decentralized LLM Agent RL Robust to Heterogeneity? An Asymmetric Tale (build of 15 July 2026)"
L10 = "mean of the last ten points, one run"
TABLE = "mean over three seeds"


@dataclass(frozen=True)
class Citation:
    """One published success rate, in percent, with the spread printed or read beside it.

    ``family``, ``variant``, ``severity``, ``mode`` and ``world`` say which of our arms stands beside it.
    """

    family: str
    variant: str
    algorithm: str
    value: float
    spread: float
    figure: str
    reading: str = L10
    mode: str = "federated"
    world: str = "webshop"
    split: str = ""

    @property
    def text(self) -> str:
        """The number with its source, for people."""
        return f"{self.value:.1f} ± {self.spread:.1f} ({self.figure}, {self.reading})"


def _pairs(
    figure: str, algorithm: str, variant: str, world: str, near: tuple[float, float], extreme: tuple[float, float]
) -> list[Citation]:
    return [
        Citation("task", variant, algorithm, *near, figure, world=world, split="near"),
        Citation("task", variant, algorithm, *extreme, figure, world=world, split="extreme"),
    ]


UNIFORM: Sequence[Citation] = (
    Citation("uniform", "", "grpo", 61.5, 3.9, "Table 1, Qwen2.5-1.5B", TABLE),
    Citation("uniform", "", "grpo", 60.4, 3.3, "Table 1, Qwen2.5-1.5B", TABLE, "centralized"),
    Citation("uniform", "", "ppo", 59.9, 2.4, "Table 3, Qwen2.5-1.5B", TABLE),
    Citation("uniform", "", "ppo", 55.2, 3.9, "Table 3, Qwen2.5-1.5B", TABLE, "centralized"),
    Citation("uniform", "", "grpo", 57.7, 2.6, "Figure 4"),
    Citation("uniform", "", "grpo", 52.7, 4.9, "Figure 4", L10, "centralized"),
    Citation("uniform", "", "grpo", 63.0, 2.4, "Table 1, Qwen2.5-1.5B", TABLE, "federated", "alfworld"),
    Citation("uniform", "", "grpo", 56.2, 5.6, "Table 1, Qwen2.5-1.5B", TABLE, "centralized", "alfworld"),
    Citation("uniform", "", "ppo", 64.6, 1.8, "Table 3, Qwen2.5-1.5B", TABLE, "federated", "alfworld"),
    Citation("uniform", "", "ppo", 57.3, 5.0, "Table 3, Qwen2.5-1.5B", TABLE, "centralized", "alfworld"),
)
"""Alike clients. The three local clients of Table 1 reach 26.6 to 37.5 on WebShop, 12.5 to 35.9 on ALFWorld."""

LOCAL = {
    ("webshop", "grpo"): "Published local-only clients (Table 1, Qwen2.5-1.5B, three single runs): 26.6, 32.8 and 37.5 %.",
    ("webshop", "ppo"): "Published local-only clients (Table 3, Qwen2.5-1.5B, three single runs): 26.6, 34.4 and 40.6 %.",
    ("alfworld", "grpo"): "Published local-only clients (Table 1, Qwen2.5-1.5B, three single runs): 12.5, 20.3 and 35.9 %.",
    ("alfworld", "ppo"): "Published local-only clients (Table 3, Qwen2.5-1.5B, three single runs): 14.1, 25.0 and 34.4 %.",
}

TASK: Sequence[Citation] = (
    *_pairs("Figure 5", "grpo", "preference", "webshop", (51.6, 3.6), (58.3, 5.4)),
    *_pairs("Figure 5", "grpo", "coverage", "webshop", (47.3, 3.9), (50.1, 11.2)),
    *_pairs("Figure 5", "grpo", "hardness", "webshop", (56.7, 4.9), (51.6, 9.5)),
    *_pairs("Figure 8", "ppo", "preference", "webshop", (56.2, 5.4), (61.0, 5.7)),
    *_pairs("Figure 8", "ppo", "coverage", "webshop", (63.5, 5.9), (53.8, 4.4)),
    *_pairs("Figure 8", "ppo", "hardness", "webshop", (56.9, 5.3), (56.0, 4.1)),
)

ENVIRONMENT: Sequence[Citation] = (
    Citation("environment", "catalog_split", "grpo", 38.1, 5.9, "Figure 6"),
    Citation("environment", "bm25_reweight", "grpo", 32.5, 3.4, "Figure 6"),
    Citation("environment", "lookalike", "grpo", 23.5, 5.4, "Figure 6"),
    Citation("environment", "field_subset", "grpo", 15.6, 2.0, "Figure 6"),
    Citation("environment", "rank_wrapper", "grpo", 8.8, 2.2, "Figure 6"),
    Citation("environment", "catalog_split", "ppo", 54.7, 5.2, "Figure 6"),
    Citation("environment", "bm25_reweight", "ppo", 30.4, 11.0, "Figure 6"),
    Citation("environment", "lookalike", "ppo", 44.2, 2.7, "Figure 6"),
    Citation("environment", "field_subset", "ppo", 38.9, 5.2, "Figure 6"),
    Citation("environment", "rank_wrapper", "ppo", 16.3, 3.6, "Figure 6"),
)

REFERENCE = {"grpo": 57.7, "ppo": 59.0}
"""The uniform curve of Figure 6 by algorithm, L10: what shares are taken of."""

CITATIONS: Sequence[Citation] = (*UNIFORM, *TASK, *ENVIRONMENT)
