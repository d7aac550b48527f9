"""Worlds, families, partitions and rules from outside the package, each put to its real use; and settings that know their names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from envs.base import World, make_world
from envs.reachability import distances, reachability, require_distinct
from envs.registry import RegistryError
from envs.variants import Family
from pipeline.aggregation import Rule, make_aggregator, make_rule
from pipeline.algorithms import make_algorithm
from pipeline.algorithms.base import MicroBatch
from pipeline.algorithms.grpo import GRPO
from pipeline.cli import main as fedagent
from pipeline.config import Config
from pipeline.config.load import config_help, load_config, load_resolved, resolve
from pipeline.episodes import ClientUpdate, Episode, GlobalState, Turn
from pipeline.errors import AggregationError, ConfigError
from pipeline.heterogeneity import prove, set_up
from pipeline.partitioning import partition_tasks
from pipeline.plugins import PerturbedEnv, load, prepare, register_algorithm, register_family, register_partition, register_rule
from pipeline.run import main as run
from pipeline.schedule import client_names
from tests.plugin_state import EXAMPLES, OWN_PARTS, THERMOSTAT, forgotten_afterwards

ROOT = Path(__file__).resolve().parents[2]
BOTH = f"--run.plugins={THERMOSTAT},{OWN_PARTS}"
ROOMS = (BOTH, "--world.name=thermostat", "--federation.tasks_per_client=50")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with forgotten_afterwards():
        yield


@pytest.fixture
def own_parts() -> None:
    load([str(THERMOSTAT), str(OWN_PARTS)])


def refused(*words: str) -> str:
    with pytest.raises(ConfigError) as error:
        prepare(load_config(None, [BOTH, *words]))
    return str(error.value)


# --- a world ---


def test_clients_live_in_rooms_of_their_own_that_the_oracle_masters() -> None:
    config = load_config(None, [*ROOMS, "--world.variant.family=wiring"])
    made = set_up(config)
    proof = prove(config, made.world, made.assignment, made.tasks)
    assert sorted(set(made.assignment.names.values())) == ["wiring:control", "wiring:reversed"]
    assert [reach.reach.share for reach in proof.reach] == [1.0] * 8
    (difference,) = proof.differences
    assert difference.replies > 0.5


def test_a_world_without_a_probe_of_its_own_is_compared_by_what_it_answers(own_parts: None) -> None:
    world = make_world("thermostat")
    require_distinct(distances(world, {"as usual": "default", "reversed": "wiring:reversed"}))
    with pytest.raises(ValueError, match="answer alike to every question"):
        require_distinct(distances(world, {"as usual": "default", "control": "wiring:control"}))
    some = distances(world, {"as usual": "default", "half": "wiring:reversed@0.5"})[0]
    assert 0 < some.replies < distances(world, {"as usual": "default", "all": "wiring:reversed"})[0].replies


def test_settings_reach_a_world_from_outside() -> None:
    config = load_config(None, [*ROOMS, "--world.heldout=30", "--world.max_steps=9", "--world.options.train=60"])
    world = set_up(config).world
    assert (len(world.tasks("train")), len(world.tasks("heldout")), world.max_steps) == (60, 30, 9)
    with pytest.raises(ConfigError, match=r"world\.options of world 'thermostat': .*'colour'"):
        set_up(load_config(None, [*ROOMS, "--world.options.colour=red"]))


# --- a family for a world that is there ---


def test_a_family_from_outside_stands_beside_the_worlds_own(own_parts: None) -> None:
    world = make_world("bandit", delta=1.0)
    task = world.tasks("train")[0]
    assert {"conflict", "relabelled"} <= set(world.families)
    pays = {}
    for variant in ("default", "relabelled:control", "relabelled:swapped", "relabelled:swapped@0", "conflict:b"):
        env = world.make(variant)
        env.reset(seed=0, options={"task": task})
        pays[variant] = env.step("a")[1]
        assert reachability(world, variant, world.tasks("heldout")[:20]).share == 1.0
    assert pays == {"default": 10, "relabelled:control": 10, "relabelled:swapped": 0, "relabelled:swapped@0": 10, "conflict:b": 0}
    require_distinct(distances(world, {"one": "relabelled:control", "other": "relabelled:swapped"}))
    assert world.values("conflict:b") == (0.0, 1.0), "what only the bandit has is still there"  # type: ignore[attr-defined]


def test_a_family_from_outside_reveals_itself(own_parts: None) -> None:
    world = make_world("bandit")
    seen = {}
    for reveal in ("name", "cue", "hint"):
        for member in ("control", "swapped"):
            env = world.make(f"relabelled:{member}+{reveal}")
            seen[reveal, member] = env.reset(seed=0, options={"task": world.tasks("train")[0]})[0].splitlines()[-1]
    assert len(set(seen.values())) == 6
    assert seen["hint", "swapped"] == "Here: swapped"


def test_a_federation_meets_the_family(capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(None, [BOTH, "--world.name=bandit", "--world.variant.family=relabelled"])
    made = set_up(config)
    assert prove(config, made.world, made.assignment, made.tasks).differences[0].replies > 0
    words = ["--plugins", str(OWN_PARTS), "--plugins", str(THERMOSTAT), "--world.name=bandit", "--world.variant.family=relabelled"]
    assert fedagent(["diagnose", *words, "--json"]) == 0
    assert "conflict" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"'relabelld'.*did you mean 'relabelled'"):
        set_up(load_config(None, [BOTH, "--world.name=bandit", "--world.variant.family=relabelld"]))


def test_families_that_cannot_be(own_parts: None) -> None:
    family = Family("conflict", "dynamics", ("one",), "nothing")
    with pytest.raises(RegistryError, match=r"'conflict' is taken \(by world 'bandit' itself\)"):
        register_family("bandit", family)(PerturbedEnv)
    with pytest.raises(RegistryError, match=r"is no subclass of envs\.perturbed\.PerturbedEnv"):
        register_family("bandit", Family("other", "dynamics", ("one",), "nothing"))(World)  # type: ignore[type-var]
    with pytest.raises(RegistryError, match="has no members"):
        register_family("bandit", Family("other", "dynamics", (), "nothing"))(PerturbedEnv)

    class Lost(PerturbedEnv): ...

    register_family("bandits", Family("other", "dynamics", ("one",), "nothing"))(Lost)
    with pytest.raises(ConfigError, match=r"'bandits/other'.*there is no world 'bandits'; did you mean 'bandit'"):
        load([])


# --- a partition ---


def test_a_partition_from_outside_is_dealt_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(None, [*ROOMS, "--federation.partition.name=neighbours", "--federation.partition.options.by=category"])
    made = set_up(config)
    kinds = [{task.category for task in tasks} for tasks in made.tasks.values()]
    assert [len(tasks) for tasks in made.tasks.values()] == [50] * 8
    assert kinds[0] == {"down"}
    assert kinds[-1] == {"up"}
    words = ["--world", "thermostat", "--tasks", "50", "--federation.partition.name=neighbours", "--out", str(tmp_path / "p.json")]
    assert fedagent(["data", "partition", "--plugins", f"{THERMOSTAT},{OWN_PARTS}", *words]) == 0
    assert "given by neighbours" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "p.json").read_text())) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--federation.partition.name=neighbour"], ['federation.partition.name = "neighbour"', "neighbours", "did you mean 'neighbours'"]),
        (["--federation.partition.options.by=id"], ["federation.partition.options", "cannot matter without federation.partition.name"]),
        (["--federation.partition.name=neighbours", "--federation.partition.preference=0.5"], ["partition.preference", "cannot matter"]),
    ],
)
def test_partition_settings_that_cannot_be(words: list[str], message: list[str]) -> None:
    text = refused(*words)
    for part in message:
        assert part in text


@pytest.mark.parametrize(
    ("deal", "message"),
    [
        (lambda tasks, clients, *, size, seed: {c: [tasks[0].id] * 2 for c in clients}, "client c000 was given task .* twice"),
        (lambda tasks, clients, *, size, seed: {c: ["nowhere"] for c in clients}, r"dealt out what cannot be: .*'nowhere' not among"),
        (lambda tasks, clients, *, size, seed: {"c000": [tasks[0].id]}, r"dealt out what cannot be: .*no tasks for 'c001'"),
        (lambda tasks, clients, *, size, seed: {c: [3] for c in clients}, "client c000 was given 3, which is no task id"),
        (lambda tasks, clients, *, size, seed: list(clients), "gave a list where task ids by client were expected"),
        (lambda tasks, clients, *, size: {}, r"federation\.partition\.options = {}: .*seed"),
    ],
)
def test_partitions_that_deal_out_nonsense_are_refused(deal: object, message: str) -> None:
    register_partition("odd")(deal)  # type: ignore[type-var]
    config = load_config(None, [BOTH, "--federation.partition.name=odd", "--world.name=thermostat"])
    with pytest.raises(ConfigError, match=message):
        partition_tasks(config.federation, client_names(config.federation), make_world("thermostat").tasks("train"), 0)


# --- an algorithm ---


def test_an_algorithm_from_outside_is_built_from_its_settings() -> None:
    config = load_config(None, [BOTH, "--algorithm.name=rloo", "--algorithm.options.scale=0.5", "--algorithm.passes=2"])
    prepare(config)
    algorithm = make_algorithm(config.algorithm)
    assert algorithm.passes == 2
    returns = {("t1", 0): (10.0, 0.0, 0.0, 2.0), ("t1", 1): (4.0,), ("t2", 0): (1.0, 3.0)}
    turns = (Turn((5, 6), (7, 8), (-0.5, -1.0), "a", True, 0.0), Turn((5, 6, 7), (9,), (-2.0,), "b", True, 0.0))
    episodes = [
        Episode(task, "c000", "default", "g", turns, ret, 0.0, ret > 5, "done", group=group)
        for (task, group), all_returns in returns.items()
        for ret in all_returns
    ]
    rows = algorithm.rows(episodes)
    expected = 0.5 * np.array([10 - 2 / 3, 0 - 4, 0 - 4, 2 - 10 / 3, 0, 1 - 3, 3 - 1])
    np.testing.assert_allclose(rows.advantages, np.repeat(expected, 2), rtol=1e-6)
    assert rows.response_lengths.tolist() == [2, 1] * 7
    logprobs = torch.tensor([-0.5, -1.0, -2.0], requires_grad=True)
    batch = MicroBatch(*[torch.zeros(0)] * 4, advantages=torch.tensor([3.0, 3.0, -1.0]), rows=np.arange(2))
    algorithm.loss(batch, logprobs, torch.zeros(3), None).total.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-3.0, -3.0, 1.0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm.name=rlo"], ['algorithm.name = "rlo"', "grpo | ppo | rloo", "did you mean 'rloo'"]),
        (["--algorithm.name=rloo", "--algorithm.clip_low=0.1"], ["algorithm.clip_low = 0.1", "cannot matter with algorithm.name = rloo"]),
        (["--algorithm.name=rloo", "--algorithm.group_size=1"], ["algorithm.group_size = 1", "compares episodes of one task"]),
        (["--algorithm.name=rloo", "--algorithm.options.scale=0"], ["algorithm.options = {'scale': 0}", "allowed: more than 0"]),
        (["--algorithm.options.scale=1"], ["algorithm.options", "cannot matter with algorithm.name = grpo"]),
    ],
)
def test_algorithms_that_cannot_be(words: list[str], message: list[str]) -> None:
    text = refused(*words)
    for part in message:
        assert part in text


def test_what_is_no_algorithm_is_refused() -> None:
    with pytest.raises(RegistryError, match=r"algorithm 'mine': .*World is no subclass of pipeline\.algorithms\.base\.Algorithm"):
        register_algorithm("mine")(World)
    with pytest.raises(RegistryError, match=r"algorithm 'mine': .*'speed'"):
        register_algorithm("mine", speed=3)(GRPO)
    with pytest.raises(RegistryError, match=r"algorithm 'grpo' is taken \(by this package\)"):
        register_algorithm("grpo")(GRPO)


# --- a rule ---


def updates(count: int, seed: int = 0) -> list[ClientUpdate]:
    rng = np.random.default_rng(seed)
    deltas = [{"w": rng.normal(size=(3, 4)).astype(np.float32), "b": rng.normal(size=4).astype(np.float32)} for _ in range(count)]
    return [ClientUpdate(f"c{i:03d}", 1, "g", delta, 1, 1, 1) for i, delta in enumerate(deltas)]


def test_a_rule_from_outside_averages(own_parts: None) -> None:
    sent = updates(8)
    sent[3].delta["w"][:] = 1e6  # type: ignore[index]
    start = {"w": np.ones((3, 4), np.float32), "b": np.zeros(4, np.float32)}
    aggregator = make_aggregator("trimmed_mean", options={"trim": 0.25})
    aggregator.begin(GlobalState("g", 0, start), [u.client for u in sent])
    for update in reversed(sent):
        aggregator.add(update)
    done = aggregator.finish()
    for name in start:
        ordered = np.sort(np.stack([u.delta[name] for u in sent]).astype(np.float64), axis=0)[2:6]
        np.testing.assert_allclose(done.state[name], start[name] + ordered.mean(0), rtol=1e-6)
    assert done.metrics["update_norm"] < 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--aggregation.rule=trimed_mean"], ['aggregation.rule = "trimed_mean"', "factors | frozen_a", "did you mean 'trimmed_mean'"]),
        (["--aggregation.rule=trimmed_mean", "--aggregation.options.trim=0.7"], ["aggregation.options", "trim = 0.7; allowed: 0 to less"]),
        (["--aggregation.rule=trimmed_mean", "--aggregation.options.trm=0.1"], ["aggregation.options", "'trm'"]),
        (["--aggregation.options.trim=0.1"], ["aggregation.options", "cannot matter with aggregation.rule = null"]),
        (["--aggregation.rule=full_only"], ['aggregation.rule = "full_only"', "averages whole weights, but model.adapter = lora"]),
    ],
)
def test_rules_that_cannot_be(words: list[str], message: list[str], own_parts: None) -> None:
    class FullOnly(make_rule("full").__class__):  # type: ignore[misc]
        adapters = frozenset({"full"})

    register_rule("full_only")(FullOnly)
    text = refused(*words)
    for part in message:
        assert part in text


def test_a_rule_whose_result_has_another_form_is_named(own_parts: None) -> None:
    class Sloppy(Rule):
        def __init__(self, what: str) -> None:
            self.what = what

        def begin(self, state):  # type: ignore[no-untyped-def]
            self.start, self.sent = state, {name: value.shape for name, value in state.items()}

        def fold(self, delta, weight):  # type: ignore[no-untyped-def]
            pass

        def finish(self):  # type: ignore[no-untyped-def]
            state = {"w": self.start["w"].astype(np.float64 if self.what == "kind" else np.float32)}
            return state, {} if self.what == "norm" else {"update_norm": 0.0}

    register_rule("sloppy")(Sloppy)
    for what, message in (("norm", "no update_norm"), ("kind", r"w is float64 \(2,\), expected float32"), ("part", "b is missing")):
        aggregator = make_aggregator("sloppy", options={"what": what})
        aggregator.begin(GlobalState("g", 0, {"w": np.zeros(2, np.float32), "b": np.zeros(1, np.float32)}), ["c000"])
        aggregator.add(ClientUpdate("c000", 1, "g", {"w": np.ones(2, np.float32), "b": np.ones(1, np.float32)}, 1, 1, 1))
        with pytest.raises(AggregationError, match=rf"round 1, rule 'sloppy': .*{message}"):
            aggregator.finish()


# --- settings and the command line ---


def test_plugins_are_stored_so_that_every_process_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    given = tmp_path / "c.toml"
    given.write_text(
        '[run]\nplugins = ["thermostat", "./own_parts.py"]\n[world]\nname = "thermostat"\n[aggregation]\nrule = "trimmed_mean"\n'
    )
    config = resolve(load_config(given))
    assert config.run.plugins == (f"{EXAMPLES}:thermostat", f"{EXAMPLES}:own_parts")
    stored = tmp_path / "config.resolved.json"
    stored.write_text(json.dumps(config.plain()))
    code = (
        f"from pipeline.config.load import load_resolved; from pathlib import Path; print(load_resolved(Path({str(stored)!r})).world.name)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env, check=True)
    assert done.stdout.strip() == "thermostat"
    (tmp_path / "further.py").write_text("from envs import register_world\nregister_world('further', 'a:b')\n")
    more = load_resolved(stored, [f"--run.plugins={tmp_path / 'further.py'}"])
    assert more.run.plugins == (*config.run.plugins, f"{tmp_path}:further")


def test_plugins_do_not_count_as_another_training() -> None:
    config = load_config(None, [BOTH])
    assert config.training_hash() == Config().training_hash()


def test_help_lists_what_plugins_add(capsys: pytest.CaptureFixture[str]) -> None:
    assert "neighbours" not in config_help()
    assert run(["--help", "--plugins", f"{THERMOSTAT},{OWN_PARTS}"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("--")}
    assert "neighbours" in lines["--federation.partition.name"]
    assert "trimmed_mean" in lines["--aggregation.rule"]
    assert "thermostat" in lines["--world.name"]
    assert "rloo" in lines["--algorithm.name"]


@pytest.mark.parametrize("command", [["play", "thermostat"], ["doctor", "--quick"], ["eval", "--checkpoint", "."], ["run", "--dry-run"]])
def test_a_plugin_that_is_not_there_stops_every_command(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert fedagent([*command, "--plugins", "thermostatt"]) == 2
    assert "run.plugins: plug-in 'thermostatt': no such module" in capsys.readouterr().err
    assert fedagent([*command, "--plugins"]) == 2


def test_play_and_doctor_know_plugins(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["solve", "quit"])
    monkeypatch.setattr("pipeline.play.terminal_reader", lambda console: lambda: next(lines))
    assert fedagent(["play", "thermostat", "--plugins", str(THERMOSTAT), "--variant", "wiring:reversed"]) == 0
    assert "It is" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "200")
    fedagent(["doctor", "--quick", "--plugins", str(OWN_PARTS)])
    shown = capsys.readouterr().out
    assert "own_parts" in shown
    assert "trimmed_mean" in shown


def test_names_that_only_this_process_knows_do_not_reach_actors() -> None:
    class Local(make_world("bandit").__class__):  # type: ignore[misc]
        name = "local"

    from envs.base import register_world

    register_world("local", Local)
    with pytest.raises(ConfigError, match=r"world\.name = 'local': registered in this process alone .*add --plugins tests.pipeline"):
        prepare(load_config(None, ["--world.name=local"]))
    prepare(load_config(None, ["--world.name=local", "--resources.layout=process"]))
