"""The published constructors against statistics and hashes that were obtained by running them; the sound ones against what was meant."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.base import Task
from envs.partition import Labels, Partition, PartitionSpec, build_partition, dispersion, read_labels
from envs.partition.measures import measure
from tests.envs.partition.pools import NEUTRAL, blind, fingerprint, pool

pytestmark = pytest.mark.data("partition-golden.json")
FASHION = dict(zip(("fashion", "beauty", "grocery", "electronics", "garden"), NEUTRAL.values(), strict=True))
OMEGAS = ("0.01", "0.5", "0.99")
CONCENTRATIONS = ("256", "1")


@pytest.fixture(scope="module")
def golden(partition_golden: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(partition_golden.read_text())
    return data


@pytest.fixture(scope="module")
def neutral() -> list[Task]:
    return pool(NEUTRAL)


def reference(tasks: list[Task], labels: Labels | None = None, size: int = 100, **knobs: float) -> Partition:
    return build_partition(tasks, 100, PartitionSpec(size, reference=True, **knobs), labels=labels)


def agrees(partition: Partition, expected: dict[str, Any], hashes: bool = True) -> None:
    """Compare with a golden entry: hashes where the order of tasks is known, and statistics within the suggested tolerances."""
    m = measure(partition)
    assert (float(m.sizes.min()), float(m.sizes.max())) == (expected["size"]["min"], expected["size"]["max"])
    assert float(m.sizes.mean()) == pytest.approx(expected["size"]["mean"], abs=1e-9)
    assert m.union == pytest.approx(expected["union_coverage"], abs=1e-5 if hashes else 0.01)
    assert float(m.tv.mean()) == pytest.approx(expected["tv_from_global"]["mean"], abs=1e-5 if hashes else 0.01)
    assert m.overlap.mean == pytest.approx(expected["avg_pairwise_jaccard"], abs=1e-6 if hashes else 0.002)
    if m.easy is not None and "easy_share" in expected:
        assert float(m.easy.mean()) == pytest.approx(expected["easy_share"]["mean"], abs=1e-5 if hashes else 0.01)
    if hashes:
        assert {c: fingerprint(partition.owned[int(c)]) for c in expected["sha256_sorted_indices"]} == expected["sha256_sorted_indices"]


@pytest.mark.parametrize("size", [100, 500, 1000])
def test_uniform(golden: dict[str, Any], neutral: list[Task], size: int) -> None:
    agrees(reference(neutral, size=size), golden["results_synthetic"][f"uniform/neutral5/min={size}"])


@pytest.mark.parametrize("omega", OMEGAS)
@pytest.mark.parametrize(("name", "counts"), [("neutral5", NEUTRAL), ("fashion5", FASHION)])
def test_preference(golden: dict[str, Any], name: str, counts: dict[str, int], omega: str) -> None:
    agrees(reference(pool(counts), preference=float(omega)), golden["results_synthetic"][f"preference/{name}/omega={omega}"])


@pytest.mark.parametrize("xi", CONCENTRATIONS)
def test_coverage(golden: dict[str, Any], neutral: list[Task], xi: str) -> None:
    agrees(reference(neutral, coverage=dispersion(float(xi))), golden["results_synthetic"][f"coverage/neutral5/size_std={xi}"])


@pytest.mark.parametrize("xi", CONCENTRATIONS)
@pytest.mark.parametrize(("rate", "seed"), [("0.278", 11), ("0.594", 12)])
def test_hardness(golden: dict[str, Any], neutral: list[Task], rate: str, seed: int, xi: str) -> None:
    found = reference(neutral, blind(neutral, float(rate), seed), hardness=dispersion(float(xi)))
    agrees(found, golden["results_synthetic"][f"hardness/neutral5/easy={rate}/success_std={xi}"])


@pytest.fixture(scope="module")
def games(golden: dict[str, Any], alfworld_data: Path) -> list[Task]:
    """The train games; the goldens' order is that of an unpublished file, of which only the order of the task types is known."""
    with lzma.open(alfworld_data / "alfworld_2.1.2_games.jsonl.xz", "rt") as lines:
        rows = [row for row in map(json.loads, lines) if row["split"] == "train"]
    types = list(golden["results_alfworld_real_ids"]["alfworld_dataset"]["counts"])
    rows.sort(key=lambda row: types.index(row["task_type"]))
    return [Task(row["id"], row["task"], row["task_type"]) for row in rows]


@pytest.mark.data("alfworld")
def test_alfworld(golden: dict[str, Any], games: list[Task]) -> None:
    expected = golden["results_alfworld_real_ids"]
    for omega in OMEGAS:
        entry = expected[f"alfworld/preference/omega={omega}"]
        found = reference(games, preference=float(omega))
        agrees(found, entry, hashes=False)
        # Category counts do not depend on the order within a category.
        m = measure(found)
        assert float(m.tv.mean()) == pytest.approx(entry["tv_from_global"]["mean"], abs=1e-5)
        assert int((m.mixes.max(axis=1) == 1).sum()) == entry["clients_with_single_category"]
    for xi in CONCENTRATIONS:
        entry = expected[f"alfworld/coverage/size_std={xi}"]
        found = reference(games, coverage=dispersion(float(xi)))
        assert {c: fingerprint(found.owned[int(c)]) for c in entry["sha256_sorted_indices"]} == entry["sha256_sorted_indices"]
        easy = np.zeros(len(games), dtype=bool)
        easy[np.random.RandomState(0).permutation(len(games))[:2112]] = True
        entry = expected[f"alfworld/hardness/success_std={xi}"]
        found = reference(games, Labels({t.id: float(e) for t, e in zip(games, easy, strict=True)}), hardness=dispersion(float(xi)))
        assert measure(found).union == pytest.approx(entry["union_coverage"], abs=0.02)
        shares = found.easy_shares
        assert shares is not None
        assert float(shares.mean()) == pytest.approx(entry["easy_share"]["mean"], abs=0.01)
    assert {c: fingerprint(reference(games).owned[int(c)]) for c in ("0", "42", "99")} == {
        c: expected["alfworld/uniform/min=100"]["sha256_sorted_indices"][c] for c in ("0", "42", "99")
    }


@pytest.mark.parametrize("omega", OMEGAS)
def test_sound_preference_has_the_statistics_of_the_published_one_where_that_is_sound(
    golden: dict[str, Any], neutral: list[Task], omega: str
) -> None:
    expected = golden["results_synthetic"][f"preference/neutral5/omega={omega}"]
    tvs, unions, jaccards, singles = [], [], [], []
    for seed in range(8):
        m = measure(build_partition(neutral, 100, PartitionSpec(100, preference=float(omega)), seed=seed))
        tvs.append(float(m.tv.mean()))
        unions.append(m.union)
        jaccards.append(m.overlap.mean)
        singles.append(int((m.mixes.max(axis=1) == 1).sum()))
        assert set(m.sizes.tolist()) == {100}
    # Smoothing of the published mixes costs a little at the ends; the draws differ.
    assert np.mean(tvs) == pytest.approx(expected["tv_from_global"]["mean"], abs=0.03)
    assert np.mean(unions) == pytest.approx(expected["union_coverage"], abs=0.01)
    assert np.mean(jaccards) == pytest.approx(expected["avg_pairwise_jaccard"], abs=0.002)
    assert np.mean(singles) == pytest.approx(expected["clients_with_single_category"], abs=5)


def test_sound_coverage_has_the_published_statistics_at_the_published_sizes(golden: dict[str, Any], neutral: list[Task]) -> None:
    for xi in CONCENTRATIONS:
        expected = golden["results_synthetic"][f"coverage/neutral5/size_std={xi}"]
        spec = PartitionSpec(100, coverage=dispersion(float(xi)), min_size=100, mean_size=500, max_size=1000)
        m = measure(build_partition(neutral, 100, spec))
        assert float(m.sizes.mean()) == 500
        assert float(m.sizes.std()) == pytest.approx(expected["size"]["std_pop"], rel=0.12)
        assert m.union == 1.0
        assert float(m.tv.mean()) == pytest.approx(expected["tv_from_global"]["mean"], abs=0.01)
        assert m.overlap.mean == pytest.approx(expected["avg_pairwise_jaccard"], abs=0.002)


def test_sound_hardness_does_what_was_meant(neutral: list[Task]) -> None:
    labels = blind(neutral, 0.278)
    for xi, variance in (("256", 0.00102), ("1", 0.149)):
        # Mean and variance of the published quotas, which the published tasks do not have.
        found = build_partition(neutral, 100, PartitionSpec(100, hardness=dispersion(float(xi)), easy_mean=0.5), labels=labels)
        m = measure(found)
        assert m.easy is not None
        assert m.hardness is not None
        assert float(m.easy.mean()) == pytest.approx(0.5, abs=1e-12)
        assert m.hardness == pytest.approx(0.25 / (float(xi) + 1), rel=0.05)
        assert m.hardness == pytest.approx(variance, rel=0.25)
        if xi == "1":
            assert (float(m.easy.min()), float(m.easy.max())) == (0.0, 1.0)
            assert int((m.easy <= 0.05).sum()) >= 10
            assert int((m.easy >= 0.95).sum()) >= 10
        assert m.union > 0.6
        assert m.overlap.most[0] < 0.2, "clients with the same quota share tasks"


@pytest.mark.data
def test_the_published_labels_fit_the_public_shop(webshop_data: Path) -> None:
    from envs.webshop.world import WebShopWorld

    tasks = WebShopWorld(webshop_data).tasks("train")
    easy = read_labels(webshop_data / "hardness_qwen2.5-1.5b_webshop.json").flags(tasks)
    assert len(tasks) == 6410
    # 1780 of 6402 labels; tasks that share one count each.
    assert 1780 <= int(easy.sum()) <= 1788
