"""One trial from its settings to its stored numbers, and many of them to a results file; the training itself is a stand-in here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Config
from pipeline.errors import CheckpointError, ConfigError, DataError, EngineError
from pipeline.reproduce.arms import SHOP, ArmSpec, tale
from pipeline.reproduce.assemble import Plan, assemble, impossible, machine
from pipeline.reproduce.results import Missing, load_results
from pipeline.reproduce.store import Outcome, Store, Underway
from pipeline.reproduce.table import results_table
from pipeline.reproduce.trials import Trial, changed
from pipeline.reproduce.work import TrialStopped, do_trial
from pipeline.reproduce.writing import Writer
from tests.pipeline.reproduce.logs import StandIn
from tests.pipeline.reproduce.synthetic import synthetic_results

ARMS = tale()
ROUNDS = SHOP["federation.rounds"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "out")
    made.prepare(resume=False)
    return made


def arm(name: str) -> ArmSpec:
    return next(spec for spec in ARMS if spec.name == name)


def do(store: Store, *trials: Trial, **how: Any) -> StandIn:
    run = StandIn([], **how)
    for trial in trials:
        do_trial(store, trial, run=run)
    return run


def numbers(store: Store, trial: Trial) -> Any:
    outcome = store.outcome(trial)
    assert outcome is not None
    assert outcome.done
    return outcome.numbers


def test_a_trial_keeps_its_numbers_and_floor(store: Store) -> None:
    trial = Trial(arm("buy4"), 1)
    run = do(store, trial)
    found = numbers(store, trial)
    assert found["mean_worlds"] == pytest.approx(0.8 / 4 + 0.01)
    assert found["rounds"] == ROUNDS
    floor = store.floor(Trial(arm("buy4"), 0))
    assert floor is not None
    assert (floor.kind, floor.share) == ("floor", 0.25)
    assert store.underway(trial).round == ROUNDS
    assert run.calls == [("buy4", 1, False)]
    do_trial(store, trial, run=run)
    assert len(run.calls) == 1, "what is done is not done again"


def test_changed_settings_are_another_trial(store: Store) -> None:
    trial = Trial(arm("buy4"), 0)
    do(store, trial)
    other = Trial(changed([arm("buy4")], ["--federation.rounds=3"])[0], 0)
    assert store.outcome(other) is None
    do(store, other)
    assert (numbers(store, trial)["rounds"], numbers(store, other)["rounds"]) == (ROUNDS, 3)


def test_task_arms_have_the_bound_and_bandits_the_gap(store: Store) -> None:
    extreme, near = Trial(arm("preference-extreme"), 0), Trial(arm("preference-near"), 0)
    bandit = Trial(arm("bandit-0.8-silent"), 0)
    do(store, extreme, near, bandit)
    assert numbers(store, extreme)["bound"] > 1.5 > numbers(store, near)["bound"] >= 1
    # The stand-in's mean reward is 0.2 in both worlds, the best arm pays 0.9.
    assert numbers(store, bandit)["mean_worlds"] == pytest.approx(0.2)
    assert numbers(store, bandit)["worst_gap"] == pytest.approx(0.7)


def test_what_cannot_be_resumed_is_begun_anew(store: Store) -> None:
    trial = Trial(arm("uniform"), 0)
    torn = store.run(trial) / "metrics.jsonl"
    torn.parent.mkdir(parents=True)
    torn.write_text('{"kind": "start"}\n')

    def fail(config: Config, folder: Path) -> None:
        if (folder / "metrics.jsonl").exists():
            raise CheckpointError("another model")

    run = do(store, trial, fail=fail)
    assert [began for _, _, began in run.calls] == [True, False]
    assert numbers(store, trial)["control"] == pytest.approx(0.8)


def test_other_errors_are_the_workers_to_tell(store: Store) -> None:
    def fail(config: Config, folder: Path) -> None:
        raise EngineError("no engine")

    with pytest.raises(EngineError, match="no engine"):
        do(store, Trial(arm("uniform"), 0), fail=fail)
    with pytest.raises(TrialStopped, match="uniform, seed 0: the run ended as stopped"):
        do(store, Trial(arm("uniform"), 0), status="stopped")
    assert store.outcome(Trial(arm("uniform"), 0)) is None


def test_seconds_of_earlier_attempts_count(store: Store) -> None:
    trial = Trial(arm("uniform"), 0)
    store.note(trial, Underway(3, 8, 100.0, 200.0))
    do(store, trial)
    assert numbers(store, trial)["cpu_seconds"] > 100
    assert 200 < numbers(store, trial)["wall_seconds"] < 260


def test_the_folder_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds a reproduction already; --resume continues it"):
        store.prepare(resume=False)
    store.prepare(resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        Store(tmp_path / "file").prepare(resume=True)


def test_a_torn_result_counts_as_not_done(store: Store) -> None:
    trial = Trial(arm("uniform"), 0)
    do(store, trial)
    path = store.path / "trials" / f"{trial.id}.json"
    path.write_text(path.read_text()[:50])
    assert store.outcome(trial) is None


def plan(*names: str, seeds: int = 2, chosen: tuple[str, ...] = (), skipped: dict[str, str] | None = None) -> Plan:
    arms = [arm(name) for name in names]
    return Plan(arms, [a for a in arms if not chosen or a.name in chosen], seeds, "fedagent reproduce tale", skipped or {})


def test_rows_take_floor_and_lone_clients_from_other_arms(store: Store) -> None:
    names = ("uniform", "buy2", "alone-buy-description")
    do(store, *(Trial(arm(name), seed) for name in names for seed in (0, 1)))
    results = assemble(store, plan(*names))
    assert results.complete
    rows = {(row.name, row.seed): row for row in results.arms}
    for seed in (0, 1):
        uniform, buy2 = rows["uniform", seed], rows["buy2", seed]
        assert uniform.mean_worlds == pytest.approx(0.8 + 0.01 * seed)
        assert uniform.mean_worlds is not None
        assert buy2.floor == pytest.approx(uniform.mean_worlds / 2)
        assert (buy2.kind, buy2.versus) == ("floor", "uniform")
        assert buy2.floor_how.endswith("one of 2 worlds pays for it; times the mean of uniform")
        assert buy2.alone == rows["alone-buy-description", seed].mean_worlds is not None
        assert buy2.settings is not None
        assert buy2.settings["world.variant.members"] == 2
    assert not results.missing


def test_what_was_left_out_is_counted_and_what_failed_is_spelled_out() -> None:
    gaps = [Missing(f"a{i}", 0, "left out by --only") for i in range(9)]
    gaps += [Missing("b", 1, "failed: no engine"), Missing("c", 0, "not run yet"), Missing("d", None, "needs the ALFWorld engine")]
    shown = results_table(replace(synthetic_results(seeds=(0,)), missing=tuple(gaps))).split("Missing: 12\n")[1].splitlines()
    assert [line.strip() for line in shown] == [
        "b, seed 1: failed: no engine",
        "c, seed 0: not run yet",
        "9 arms and seeds: left out by --only",
        "d: needs the ALFWorld engine",
    ]


def test_gaps_are_named(store: Store) -> None:
    do(store, Trial(arm("buy2"), 0))
    store.save(Trial(arm("buy2"), 1), Outcome(False, {}, "EngineError: no engine", 2))
    results = assemble(store, plan("uniform", "buy2", "buy4", "alfworld", chosen=("uniform", "buy2"), skipped={"alfworld": "no engine"}))
    assert not results.complete
    assert [gap.text for gap in results.missing] == [
        "uniform, seed 0: not run yet",
        "uniform, seed 1: not run yet",
        "buy2, seed 1: failed: EngineError: no engine",
        "buy4, seed 0: left out by --only",
        "buy4, seed 1: left out by --only",
        "alfworld: no engine",
    ]
    row = results.arms[0]
    assert (row.floor, row.kind, row.alone) == (None, "floor", None)
    assert "uniform was not run" in row.floor_how


def test_files_of_a_reproduction(store: Store) -> None:
    names = ("uniform", "central", "buy4", "hardness-near")
    store.labels.write_text("{}")
    do(store, *(Trial(arm(name), 0) for name in names[:3]))
    results = Writer(store, plan(*names, seeds=1)).write()
    assert load_results(store.results) == results
    text = store.text.read_text()
    assert "central" in text
    assert "uniform: +0.0" in text
    assert "20.0 floor" in text
    assert "hardness-near, seed 0: not run yet" in text
    assert "</html>" in store.page.read_text()
    for path in (store.results, store.text, store.page):
        assert str(store.path) not in path.read_text(), "no paths of this machine"
    assert json.loads(store.results.read_text())["complete"] is False


def test_a_number_that_is_none_is_refused(store: Store) -> None:
    do(store, Trial(arm("uniform"), 0))
    good = numbers(store, Trial(arm("uniform"), 0))
    store.save(Trial(arm("uniform"), 0), Outcome(True, {**good, "control": 1.5}))
    with pytest.raises(DataError, match=r"arm 'uniform', seed 0: control = 1.5"):
        assemble(store, plan("uniform", seeds=1))


def test_labels_are_not_named_by_their_place(store: Store) -> None:
    store.labels.write_text("{}")
    store.save(Trial(arm("hardness-near"), 0), Outcome(True, numbers_of(store)))
    row = assemble(store, plan("hardness-near", seeds=1)).arms[0]
    assert row.settings is not None
    assert row.settings["federation.partition.labels"] == "solved by the oracle in 4 turns"


def numbers_of(store: Store) -> dict[str, Any]:
    do(store, Trial(arm("uniform"), 0))
    return dict(numbers(store, Trial(arm("uniform"), 0)))


def test_table_shows_intervals_over_seeds(store: Store) -> None:
    do(store, *(Trial(arm(name), seed) for name in ("uniform", "buy4") for seed in (0, 1, 2)))
    text = results_table(assemble(store, plan("uniform", "buy4", seeds=3)))
    line = next(line for line in text.splitlines() if line.startswith("buy4"))
    # 20, 21 and 22 %: mean 21, t interval 21 +- 2.5; exactly 60 points below uniform under every seed.
    assert "21.0 [19, 23]" in line
    assert "uniform: -60.0 [-60, -60]" in line


def test_machine_has_no_name() -> None:
    import platform

    assert "cores" in machine()
    assert platform.node() not in machine()


def test_arms_that_need_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    homes = replace(arm("alfworld"))
    monkeypatch.setattr("pipeline.reproduce.assemble.ALFWORLD_PARTS", ("nothing_like_that",))
    assert impossible([homes, arm("uniform")]) == {"alfworld": "needs the ALFWorld engine (nothing_like_that not installed): make alfworld"}
