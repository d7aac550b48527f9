"""The resolved plan of a run: who trains on what, which actors with which resources, how many tokens a round costs.

Computed without Ray. ``--dry-run`` prints it; the run itself takes its numbers (clients in flight, adapter slots) from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from actors.placement import Need, needs, totals
from envs.base import Task, World, WorldSpec
from envs.partition.report import PartitionReport, partition_report
from envs.variants import DEFAULT
from pipeline.config import Config
from pipeline.config.rules import adapter_slots_needed, clients_in_flight
from pipeline.errors import ConfigError, DataError
from pipeline.heterogeneity import Proof
from pipeline.models import ModelSource
from pipeline.schedule import Schedule

EMBEDDED_CATALOGUE = (400, 0)
"""Products and seed of the generated catalogue that the embedded model was trained on."""

DEFAULT_CONTEXT = 4096
"""Longest prompt plus response, in tokens, where neither model nor configuration says less."""
ENDED_TURN_SHARE = 0.7
"""Turns of a typical episode as a share of the step limit, where the oracle's plan gives no better number."""


@dataclass(frozen=True)
class Plan:
    """Numbers of a run. Token counts are per round and upper bounds unless named estimates."""

    clients: int
    clients_per_round: int
    rounds: int
    episodes_per_round: int
    tasks_train: int
    tasks_heldout: int
    tasks_per_client: Mapping[str, int]
    categories_per_client: Mapping[str, Mapping[str, int]]
    overlap: Mapping[str, int]
    actors: tuple[Need, ...]
    resources: Mapping[str, float]
    in_flight: int
    adapter_slots: int
    tokens_per_round: int
    clients_visited: int
    tasks_used: int
    worlds_per_client: Mapping[str, str] = field(default_factory=dict)
    worlds_in_words: Mapping[str, str] = field(default_factory=dict)
    proof: Mapping[str, Any] = field(default_factory=dict)
    partition: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Prepared:
    """Everything about a run that is known before Ray starts. ``config`` has all defaults resolved."""

    config: Config
    model: ModelSource
    spec: WorldSpec
    world: World
    schedule: Schedule
    plan: Plan


def episodes_per_round(config: Config) -> int:
    """Episodes of all clients in one round; the same in every mode."""
    algorithm, federation = config.algorithm, config.federation
    return federation.clients_per_round * federation.local_epochs * algorithm.tasks_per_epoch * algorithm.group_size


def estimate_tokens(world: World, tasks: Sequence[Task], config: Config, prompt_tokens: Sequence[int]) -> int:
    """Prompt and response tokens of a round, from the prompt lengths that the oracle's episodes show.

    Without any (no tokenizer at hand) the context limit stands in.
    """
    per_turn = (
        sum(prompt_tokens) / len(prompt_tokens) if prompt_tokens else config.rollout.max_context or 4096
    ) + config.rollout.max_new_tokens
    lengths = [len(world.oracle(task)) for task in tasks[:20]]
    turns = max(sum(lengths) / len(lengths) if lengths else 0.0, ENDED_TURN_SHARE * world.max_steps)
    return round(episodes_per_round(config) * min(turns, world.max_steps) * per_turn)


def context_limit(config: Config, model: ModelSource) -> int:
    """Longest prompt plus response of an engine, in tokens. Raises ``DataError`` for a model whose configuration cannot be read."""
    try:
        described = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
        limit = int(described.get("max_position_embeddings", DEFAULT_CONTEXT))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"model {model.name!r}: {model.path / 'config.json'} cannot be read: {error}") from error
    asked, new = config.rollout.max_context, config.rollout.max_new_tokens
    if asked is not None and asked > limit:
        raise ConfigError(f"rollout.max_context = {asked}: model {model.name!r} takes {limit} tokens; allowed: 32 to {limit}")
    most = min(limit, asked or DEFAULT_CONTEXT)
    if new >= most:
        raise ConfigError(f"rollout.max_new_tokens = {new}: no room for a prompt in a context of {most} tokens; allowed: 1 to {most - 1}")
    return most


def check_fit(config: Config, model: ModelSource, world: World, schedule: Schedule) -> int:
    """Raise ``ConfigError`` where settings do not fit model or world; cheap, so that it comes before anything is loaded.

    Returns the context limit in tokens.
    """
    check_heldout(config, world)
    _ = schedule.owned
    check_targets(config, model)
    return context_limit(config, model)


def check_heldout(config: Config, world: World) -> None:
    """Raise ``ConfigError`` where fewer tasks are held out than evaluation asks for."""
    heldout, skip = len(world.tasks("heldout")), config.evaluation.skip
    if skip >= heldout:
        raise ConfigError(f"evaluation.skip = {skip}: the world holds out {heldout}; allowed: 0 to {heldout - 1}")
    if config.evaluation.tasks > heldout - skip:
        left = f", evaluation.skip = {skip} passed over" if skip else ""
        raise ConfigError(
            f"evaluation.tasks = {config.evaluation.tasks}: the world holds out {heldout}{left}; allowed: 1 to {heldout - skip}"
        )


def check_targets(config: Config, model: ModelSource) -> None:
    """Raise ``ConfigError`` for LoRA targets that the model's weights do not have, ``DataError`` for weights that cannot be read."""
    targets = config.model.lora.targets
    files = sorted(model.path.glob("*.safetensors"))
    if config.model.adapter != "lora" or not files:
        return
    from safetensors import SafetensorError, safe_open

    modules: set[str] = set()
    for file in files:
        try:
            with safe_open(str(file), framework="numpy") as weights:
                names = list(weights.keys())
                modules |= {name.removesuffix(".weight") for name in names if len(weights.get_slice(name).get_shape()) == 2}
        except (SafetensorError, OSError) as error:
            raise DataError(f"model {model.name!r}: {file} cannot be read ({error}); fetch or write it again") from error
    if targets == "all-linear":
        return
    unknown = [t for t in targets if not any(m == t or m.endswith(f".{t}") for m in modules)]
    if unknown:
        known = sorted({m.rpartition(".")[2] for m in modules} - {"embed_tokens"})
        raise ConfigError(f"model.lora.targets: {', '.join(unknown)} not in model {model.name!r}; allowed: {', '.join(known)}")


def check_prompts(config: Config, prompt_tokens: Sequence[int], limit: int) -> None:
    """Raise ``ConfigError`` where most of the measured prompts leave no room for a response: episodes end there, without success."""
    new = config.rollout.max_new_tokens
    long = sum(tokens + new > limit for tokens in prompt_tokens)
    if 2 * long > len(prompt_tokens):
        raise ConfigError(
            f"rollout.max_context = {limit}: {long} of {len(prompt_tokens)} measured prompts do not fit beside "
            f"rollout.max_new_tokens = {new} (the longest has {max(prompt_tokens)} tokens); "
            f"choose {max(prompt_tokens) + new} or more, as far as the model allows, "
            "or fewer new tokens"
        )


def make_plan(
    config: Config,
    world: World,
    schedule: Schedule,
    prompt_tokens: Sequence[int] = (),
    overlap: Mapping[str, int] | None = None,
    proof: Proof | None = None,
) -> Plan:
    """The plan. Raises ``ConfigError`` when the world has too few tasks for it."""
    check_heldout(config, world)
    wanted = needs(config)
    client_tasks = schedule.partition
    covered = schedule.summary()
    mixes: dict[str, dict[str, int]] = {}
    for client, tasks in client_tasks.items():
        mix = mixes.setdefault(client, {})
        for task in tasks:
            mix[task.category] = mix.get(task.category, 0) + 1
    return Plan(
        clients=config.federation.clients,
        clients_per_round=config.federation.clients_per_round,
        rounds=config.federation.rounds,
        episodes_per_round=episodes_per_round(config),
        tasks_train=len(world.tasks("train")),
        tasks_heldout=config.evaluation.tasks,
        tasks_per_client={client: len(tasks) for client, tasks in client_tasks.items()},
        categories_per_client=mixes,
        overlap=dict(overlap or {}),
        actors=wanted,
        resources=totals(wanted),
        in_flight=clients_in_flight(config),
        adapter_slots=(config.rollout.adapter_slots or adapter_slots_needed(config)) if config.model.adapter == "lora" else 0,
        tokens_per_round=estimate_tokens(world, world.tasks("train"), config, prompt_tokens),
        clients_visited=covered.visited,
        tasks_used=covered.tasks_used,
        worlds_per_client=dict(schedule.worlds),
        worlds_in_words={name: _in_words(world, name) for name in dict.fromkeys(schedule.worlds.values())},
        proof=(proof or Proof()).plain(),
        partition=partition_summary(partition_report(schedule.drawn)),
    )


def _in_words(world: World, name: str) -> str:
    severity = world.variant(name).severity
    return world.describe(name) + ("" if severity == 1.0 else f", at severity {severity:g} of 1")


def partition_summary(report: PartitionReport) -> dict[str, Any]:
    """What the plan keeps of a partition's report: what was asked and what came of it, and where the two disagree."""
    m, kind = report.measures, report.partition.source or report.partition.spec.kind
    return {
        "kind": kind,
        "asked": [
            {"knob": line.knob, "asked": line.asked, "got": line.got, "chance": line.chance}
            for line in report.asked
            if line.asked is not None
        ],
        "chi2": float(m.chi2.mean()),
        "chi2_max": float(m.chi2.max()),
        "union": m.union,
        "overlap": m.overlap.mean,
        "violations": [finding.plain() for finding in report.violations],
        "notes": [*report.partition.notes, *report.limits],
    }


def federation_words(config: Config) -> str:
    """Who learns from whose tasks, in words."""
    federation = config.federation
    if federation.mode == "centralized":
        return f"centralized: the tasks of {federation.clients} clients pooled"
    if federation.mode == "local":
        return f"local: client {federation.local_client} of {federation.clients} alone"
    return f"federated: {federation.clients} clients, {federation.clients_per_round} per round"


def shared_words(overlap: Mapping[str, int]) -> str:
    """What the held-out tasks share with the train tasks."""
    counts = [
        f"{value:,} {name.replace('_', ' ')}"
        for name, value in overlap.items()
        if name not in ("train", "heldout", "train_tasks", "heldout_tasks")
    ]
    return "none is trained on" + (f"; in common with train tasks: {', '.join(counts)}" if counts else "")


def notices(config: Config, plan: Plan | None = None) -> list[str]:
    """What a user should know before the run and is no error."""
    world = config.world
    found = [] if plan is None else list(plan.partition.get("notes", ()))
    if config.model.name == "embedded" and (world.data is not None or (world.products, world.data_seed) != EMBEDDED_CATALOGUE):
        known, here = ("games of its own rooms", "these") if world.name == "alfworld" else ("products of its own catalogue", "this one")
        found.append(f"the embedded model knows the {known} and solves next to nothing on {here}; name a real model with --model.name")
    return found


def partition_words(partition: Mapping[str, Any]) -> str:
    """How the clients' tasks differ, in words."""
    if not partition:
        return "not known"
    knobs = ", ".join(_knob_words(line) for line in partition["asked"] if line["got"] is not None)
    broken = "".join(f"; NOT AS ASKED: {f['measure']} {f['got']:.3g}" for f in partition["violations"])
    return (
        f"{knobs or partition['kind']}: category mixes differ from the pool's by chi-square {partition['chi2']:.2f} on average, "
        f"{100 * partition['union']:.0f} % of the tasks have an owner, two clients share {100 * partition['overlap']:.1f} % of their tasks "
        f"(Jaccard){broken}"
    )


def _knob_words(line: Mapping[str, Any]) -> str:
    chance = "" if line.get("chance") is None else f"; by chance {line['chance'][0]:.2f} to {line['chance'][1]:.2f}"
    # A measure that chance lifts above what the largest knob gives in the mean is shown as that.
    return f"{line['knob']} {line['asked']:g} (got {min(1.0, max(0.0, line['got'])):.2f}{chance})"


def render_plan(plan: Plan, config: Config) -> RenderableType:
    """The plan as tables for a terminal."""
    head = Table(title=f"Plan of run {config.run.name!r}", show_header=False, title_justify="left")
    head.add_column(style="bold")
    head.add_column()
    head.add_row("model", f"{config.model.name}, adapter {config.model.adapter}, {config.model.dtype}")
    head.add_row("world", f"{config.world.name}, {plan.tasks_train} train tasks, {plan.tasks_heldout} held out")
    head.add_row("held-out tasks", shared_words(plan.overlap))
    head.add_row("tasks", partition_words(plan.partition))
    head.add_row("federation", f"{federation_words(config)}, {plan.rounds} rounds")
    head.add_row(
        "algorithm", f"{config.algorithm.name}, {config.algorithm.tasks_per_epoch} tasks x {config.algorithm.group_size} episodes per epoch"
    )
    if config.federation.mode == "federated":
        head.add_row("aggregation", f"{config.aggregation.rule}, weights {config.aggregation.weighting}")
    head.add_row("per round", f"{plan.episodes_per_round} episodes, about {plan.tokens_per_round:,} tokens")
    trained = f"{plan.clients_visited} of {plan.clients} clients train, " if config.federation.mode == "federated" else ""
    head.add_row("whole run", f"{trained}{plan.tasks_used} different tasks")
    flight = f"{plan.in_flight} client{'s' if plan.in_flight > 1 else ''}"
    head.add_row("in flight", flight + (f", {plan.adapter_slots} adapter slots" if plan.adapter_slots else ""))
    for notice in notices(config, plan):
        head.add_row("[yellow]note[/]", notice)
    actors = Table(title="Actors", title_justify="left")
    for column in ("role", "count", "CPU each", "GPU each"):
        actors.add_column(column, justify="left" if column == "role" else "right")
    for need in plan.actors:
        if need.count:
            actors.add_row(need.role, str(need.count), f"{need.cpus:g}", f"{need.gpus:g}")
    actors.add_row("total", "", f"{plan.resources.get('CPU', 0):g}", f"{plan.resources.get('GPU', 0):g}", style="bold")
    return Group(head, actors, *proof_tables(plan), clients_table(plan))


SHOWN_CLIENTS = 20
"""Rows of the plan's tables; the run's log has all."""


def clients_table(plan: Plan) -> Table:
    """Each client's tasks by category, and its world where worlds differ."""
    table = Table(title="Clients", title_justify="left")
    categories = sorted({c for mix in plan.categories_per_client.values() for c in mix})
    worlds = any(name != DEFAULT for name in plan.worlds_per_client.values())
    columns = ("client", *(["world"] if worlds else []), "tasks", *categories)
    for column in columns:
        table.add_column(column, justify="left" if column in ("client", "world") else "right", overflow="fold")
    shown = list(plan.tasks_per_client)[:SHOWN_CLIENTS]
    for client in shown:
        mix = plan.categories_per_client[client]
        world = [plan.worlds_per_client.get(client, DEFAULT)] if worlds else []
        table.add_row(client, *world, str(plan.tasks_per_client[client]), *(str(mix.get(c, 0)) for c in categories))
    if len(plan.tasks_per_client) > len(shown):
        table.add_row(f"... {len(plan.tasks_per_client) - len(shown)} more")
    return table


def ranks(differences: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the worlds compared rank anything: elsewhere no hits could differ."""
    return any(row["jaccard"] < 1 or row["top1"] > 0 for row in differences)


def proof_tables(plan: Plan) -> list[Table]:
    """What the oracle could reach in the clients' worlds, and how the worlds differ; nothing where they do not."""
    tables = []
    reach: dict[str, list[Mapping[str, Any]]] = {}
    for found in plan.proof.get("reach", []):
        reach.setdefault(found["world"], []).append(found)
    if reach:
        table = Table(title="Worlds: what the scripted oracle can reach", title_justify="left")
        for column in ("world", "what it does", "clients", "tasks tried", "solved", "worst client"):
            table.add_column(column, justify="left" if column in ("world", "what it does") else "right", overflow="fold")
        for world, rows in list(reach.items())[:SHOWN_CLIENTS]:
            tried, solved = sum(row["tried"] for row in rows), sum(row["solved"] for row in rows)
            worst = min(rows, key=lambda row: float(row["share"]))
            share = f"{100 * solved / tried:.0f} %" if tried else "-"
            words = plan.worlds_in_words.get(world, "")
            table.add_row(world, words, str(len(rows)), str(tried), share, f"{worst['client']} {100 * worst['share']:.0f} %")
        if len(reach) > SHOWN_CLIENTS:
            table.add_row(f"... {len(reach) - SHOWN_CLIENTS} more")
        tables.append(table)
    if differences := plan.proof.get("differences"):
        table = Table(title="Worlds: how far apart", title_justify="left")
        ranked = ["hits in common (Jaccard@10)", "other first hit"] if ranks(differences) else []
        for column in ("worlds", *ranked, "other replies"):
            table.add_column(column, justify="left" if column == "worlds" else "right", overflow="fold")
        for row in differences[:SHOWN_CLIENTS]:
            pair = f"{row['first']} | {row['second']}"
            hits = [f"{row['jaccard']:.2f}", f"{100 * row['top1']:.0f} %"] if ranked else []
            table.add_row(pair, *hits, f"{100 * row['replies']:.0f} %")
        if len(differences) > SHOWN_CLIENTS:
            table.add_row(f"... {len(differences) - SHOWN_CLIENTS} more pairs")
        tables.append(table)
    return tables


def print_plan(plan: Plan, config: Config) -> None:
    """Write the plan to standard output."""
    Console().print(render_plan(plan, config))
