"""Reading a configuration: a TOML, YAML or JSON file plus dotted overrides; every problem is reported at once, with a hint.

Owns syntax, types and bounds, and the defaults that depend on other settings. What settings mean together is in ``rules``.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pipeline.config.base import Section
from pipeline.config.config import Config
from pipeline.config.fields import Setting, scalar, settings
from pipeline.config.rules import Problem, adapter_slots_needed, problems
from pipeline.errors import ConfigError
from pipeline.plugins import load as load_plugins

_MISSING = object()
_SWITCHES = ("config", "resume", "dry-run", "plugins", "help")
"""Words of the command line that are no settings, for the nearest name."""
_SHOWN = 80
"""Characters shown of a refused value."""


LEARNING_RATES: Mapping[tuple[bool, bool], float] = {(True, True): 5e-3, (True, False): 1e-3, (False, True): 1e-5, (False, False): 1e-6}
"""Default learning rate by (embedded model, LoRA). 1e-6 for whole weights of a real model is the published setting."""

CRITIC_LEARNING_RATES: Mapping[tuple[bool, bool], float] = {
    (True, True): 5e-3, (True, False): 1e-3, (False, True): 1e-4, (False, False): 1e-5,
}  # fmt: skip
"""The same for the critic. 1e-5 for whole weights of a real model is the published setting."""

OWN_TEMPLATES: Mapping[str, str] = {"alfworld": "memory", "bandit": "plain", "guess": "plain"}
"""Prompt forms of the embedded models by world; ``short`` elsewhere."""

WORLD_DEFAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "bandit": {"evaluation": {"tasks": 400, "world_tasks": 400}},
    "guess": {"rollout": {"history": 8}, "evaluation": {"tasks": 100}},
}
"""Defaults of the toy worlds where they differ from the usual ones: how many tasks are held out, and how many past turns a game has."""

EMBEDDED_LEARNER: Mapping[str, Mapping[str, Any]] = {"alfworld": {"lr": 1.5e-3, "mini_batch": 256}, "bandit": {"lr": 2e-3}}
"""For whole weights of embedded models, by world. In a house many turns share one outcome: fewer, larger steps."""

MODEL_NEW_TOKENS = 512
"""Default response length of models that think before they act."""


def load_config(path: Path | None = None, overrides: Sequence[str] = (), *, must_matter: frozenset[str] | None = None) -> Config:
    """The configuration of ``path`` (all defaults without one) with ``overrides`` such as ``--federation.rounds 5`` on top.

    Raises ``ConfigError`` that lists every unknown key (with the nearest name), wrong type, value out of range, and every combination
    that cannot work or option that cannot matter (``rules``): of all options, or of those named by ``must_matter``. What a sweep's base
    sets may matter in some of its trials only.
    """
    tree, lines = ({}, {}) if path is None else _read(path)
    found: list[Problem] = []
    _apply(tree, overrides, found)
    _load_plugins(tree)
    places = {name: f"{path}, line {line}" for name, line in lines.items()}
    if path is not None:
        given: dict[str, Any] = {}
        _apply(given, overrides, [])
        places |= {setting.path: "command line" for setting in settings() if _names(given, setting.path)}
    return _validate(tree, found, places, path, must_matter)


def load_resolved(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The same for a stored ``config.resolved.json``, whose every value stands, whatever today's defaults are.

    Only what ``overrides`` name is refused where it cannot matter. Adapter slots follow the clients in flight unless they are named.
    Plug-ins that ``overrides`` name are loaded beside the stored ones.
    """
    tree, _ = _read(path)
    given: dict[str, Any] = {}
    found: list[Problem] = []
    _apply(given, overrides, found)
    if given and isinstance(tree.get("rollout"), dict):
        tree["rollout"]["adapter_slots"] = None
    stored = _plugins(tree)
    for section, values in given.items():
        _merge(tree, section, values)
    if added := _plugins(given):
        tree["run"]["plugins"] = list(dict.fromkeys((*stored, *added)))
    _load_plugins(tree)
    explicit = frozenset(s.path for s in settings() if _names(given, s.path))
    try:
        return _validate(tree, found, {}, path, explicit)
    except ConfigError as error:
        raise ConfigError(f"{error}\n(settings of {path} with the command line on top)") from None


def _plugins(tree: Mapping[str, Any]) -> list[str]:
    """The plug-ins that a file or command line names; none where the setting has another form, which validation refuses."""
    run = tree.get("run")
    named = run.get("plugins") if isinstance(run, dict) else None
    return named if isinstance(named, list) and all(isinstance(name, str) for name in named) else []


def _load_plugins(tree: dict[str, Any]) -> None:
    """Load them before anything is validated, since they say what is valid; and write them as other processes find them."""
    if named := _plugins(tree):
        tree["run"]["plugins"] = list(load_plugins(named))


def resolve(config: Config) -> Config:
    """The same with the defaults filled in that depend on other settings, so that the stored file hides nothing.

    What depends on the model (``rollout.max_context``) or on the world's data (``world.*``) is filled in where those are known.
    """
    changes: dict[str, dict[str, Any]] = {"aggregation": {}, "rollout": {}, "learner": {}, "critic": {}, "federation": {}}
    partition = config.federation.partition
    # A run may be resumed from another folder.
    files = {name: path.expanduser().absolute() for name in ("file", "labels") if (path := getattr(partition, name)) is not None}
    if files:
        changes["federation"]["partition"] = partition.model_copy(update=files)
    lora = config.model.adapter == "lora"
    embedded = config.model.name == "embedded"
    if "lr" not in config.learner.model_fields_set:
        changes["learner"]["lr"] = LEARNING_RATES[embedded, lora]
    if "lr" not in config.critic.model_fields_set:
        changes["critic"]["lr"] = CRITIC_LEARNING_RATES[embedded, lora]
    if embedded and not lora:
        own = EMBEDDED_LEARNER.get(config.world.name, {})
        changes["learner"].update({name: value for name, value in own.items() if name not in config.learner.model_fields_set})
    if "max_new_tokens" not in config.rollout.model_fields_set and not embedded:
        changes["rollout"]["max_new_tokens"] = MODEL_NEW_TOKENS
    if config.aggregation.rule is None:
        changes["aggregation"]["rule"] = "product" if lora else "full"
    if config.rollout.template == "auto":
        changes["rollout"]["template"] = OWN_TEMPLATES.get(config.world.name, "short") if embedded else "tags"
    for section, defaults in WORLD_DEFAULTS.get(config.world.name, {}).items():
        given = getattr(config, section).model_fields_set
        changes.setdefault(section, {}).update({name: value for name, value in defaults.items() if name not in given})
    if config.rollout.self_test and config.rollout.self_test_tolerance is None:
        changes["rollout"]["self_test_tolerance"] = 0.002 if config.model.dtype == "float32" else 0.1
    if lora and config.rollout.adapter_slots is None:
        changes["rollout"]["adapter_slots"] = adapter_slots_needed(config)
    return config.model_copy(update={name: getattr(config, name).model_copy(update=update) for name, update in changes.items() if update})


def config_help() -> str:
    """All settings, one a line: name, default, what is allowed, what it means."""
    rows = [(f"--{s.path}", s.default_text, s.allowed, s.description) for s in settings()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {default:<{widths[1]}}  {meaning} [{allowed}]" for name, default, allowed, meaning in rows)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """A file's content as nested mappings, and the line of every dotted key."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"configuration {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration {path} is not UTF-8 text: {error}") from error
    try:
        kind = path.suffix.lower()
        if kind == ".toml":
            tree: Any = tomllib.loads(text)
            lines = dict(_toml_lines(text))
        elif kind == ".json":
            tree, lines = json.loads(text, object_pairs_hook=_once), {}
        elif kind in (".yaml", ".yml"):
            tree, lines = yaml.safe_load(text), dict(_yaml_lines(yaml.compose(text), ""))
        else:
            raise ConfigError(f"configuration {path}: unknown kind {path.suffix!r} (known: .toml, .yaml, .yml, .json)")
    except RecursionError:
        raise ConfigError(f"configuration {path} is malformed: it is nested without end, sections hold at most two levels") from None
    except (tomllib.TOMLDecodeError, yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"configuration {path} is malformed: {error}") from error
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f"configuration {path}: expected sections such as `federation:`, found a {type(tree).__name__}")
    return tree, lines


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            section = header[1].replace(" ", "")
            yield section, number
        elif key := re.match(r"\s*([A-Za-z0-9_.\-]+)\s*=", line):
            yield f"{section}.{key[1]}".lstrip("."), number


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's content; the standard reader would let the last of two equal keys win in silence."""
    tree: dict[str, Any] = {}
    for key, value in pairs:
        if key in tree:
            raise ValueError(f"key {key!r} appears twice in one section; join the two")
        tree[key] = value
    return tree


def _yaml_lines(node: Any, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = f"{prefix}{key.value}", key.start_mark.line + 1
            if name in seen:
                raise ValueError(f"{name!r} appears twice, in lines {seen[name]} and {line}; join the two")
            seen[name] = line
            yield name, line
            yield from _yaml_lines(value, f"{name}.")


def _apply(tree: dict[str, Any], overrides: Sequence[str], found: list[Problem]) -> None:
    """Write overrides into ``tree``: ``--a.b value``, ``--a.b=value``, or ``--a.b`` alone for a switch."""
    known = {setting.path: setting for setting in settings()}
    words = list(overrides)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or len(word) == 2:
            found.append(Problem(word, _MISSING, "expected --section.key value"))
            continue
        path, equals, text = word[2:].partition("=")
        setting = known.get(path)
        table = known.get(path.rpartition(".")[0])
        if setting is None and table is not None and "table" in table.kinds:
            if not equals and (not words or words[0].startswith("--")):
                found.append(Problem(path, _MISSING, "needs a value (true | false | number | text)"))
                continue
            _put(tree, path, scalar(text if equals else words.pop(0)))
            continue
        if setting is None:
            if not equals and words and not words[0].startswith("--"):
                words.pop(0)
            section = [name for name in known if name.startswith(f"{path}.")]
            hint = f"is a section; give one of its settings, such as --{section[0]}" if section else _unknown(path, known)
            found.append(Problem(path, _MISSING, hint))
            continue
        value: Any
        if equals:
            value = setting.parse(text)
        elif words and not words[0].startswith("--"):
            value = setting.parse(words.pop(0))
        elif setting.kinds == {"boolean"}:
            value = True
        else:
            found.append(Problem(path, _MISSING, f"needs a value ({setting.allowed})"))
            continue
        _put(tree, path, value)


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted key; what stands where a section should is left for validation to refuse."""
    *sections, key = path.split(".")
    for name in sections:
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree[key] = value


def _unknown(path: str, known: Mapping[str, Setting]) -> str:
    if path in known:
        section, _, key = path.rpartition(".")
        return f"write `{key}` in section `{section}`; a file has no dotted names in quotes"
    if path in _SWITCHES or (near := difflib.get_close_matches(path, _SWITCHES, n=1, cutoff=0.5)):
        return f"unknown setting; did you mean '--{path if path in _SWITCHES else near[0]}'?"
    candidates = [*known, *{name.rpartition(".")[0] for name in known}]
    near = difflib.get_close_matches(path, candidates, n=1, cutoff=0.6)
    if not near:
        last = path.rpartition(".")[2]
        by_key = {name.rpartition(".")[2]: name for name in known}
        near = [by_key[key] for key in difflib.get_close_matches(last, by_key, n=1, cutoff=0.75)]
    return "unknown setting" + (f"; did you mean {near[0]!r}?" if near else "; --help lists all settings")


def _merge(tree: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(value, dict) and isinstance(tree.get(key), dict):
        for name, inner in value.items():
            _merge(tree[key], name, inner)
    else:
        tree[key] = value


def _names(tree: Any, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(tree, dict) or part not in tree:
            return False
        tree = tree[part]
    return True


def _validate(
    tree: dict[str, Any], found: list[Problem], places: Mapping[str, str], path: Path | None, explicit: frozenset[str] | None = None
) -> Config:
    known = {setting.path: setting for setting in settings()}
    _take_unknown(tree, Config, "", known, found)
    config: Config | None = None
    try:
        config = Config.model_validate_json(json.dumps(tree, default=str, ensure_ascii=False).encode(), strict=True)
    except (RecursionError, UnicodeEncodeError) as error:
        what = "a value is nested without end" if isinstance(error, RecursionError) else "a value is not UTF-8 text"
        raise ConfigError(f"{'the command line' if path is None else f'configuration {path}'}: {what}") from None
    except ValidationError as error:
        seen: set[str] = set()
        for detail in error.errors():
            name = _setting_name(detail["loc"], known)
            if name not in seen:
                seen.add(name)
                found.append(_bad_value(name, tree, known.get(name), detail["msg"]))
    if config is not None:
        found.extend(p for p in problems(config) if explicit is None or not p.idle or p.path in explicit)
    if found or config is None:
        raise ConfigError(_report(found, places))
    return config


def _take_unknown(tree: dict[str, Any], section: type[Section], prefix: str, known: Mapping[str, Setting], found: list[Problem]) -> None:
    """Move unknown keys from ``tree`` to ``found``, so that the rest is checked all the same."""
    for key in list(tree):
        name = f"{prefix}{key}"
        info = section.model_fields.get(str(key))
        if info is None:
            value = tree.pop(key)
            found.append(Problem(name, _MISSING if isinstance(value, dict) else value, _unknown(name, known)))
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            if tree[key] is None:
                # A YAML section whose every line is commented out.
                tree[key] = {}
            elif isinstance(tree[key], dict):
                _take_unknown(tree[key], info.annotation, f"{name}.", known, found)
            else:
                found.append(Problem(name, tree.pop(key), "is a section, expected settings in it"))


def _setting_name(location: tuple[int | str, ...], known: Mapping[str, Setting]) -> str:
    """The setting that an error's location lies in: parts after it say which member of a union was tried."""
    parts = [str(part) for part in location]
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in known:
            return ".".join(parts[:end])
    return ".".join(parts)


def _bad_value(name: str, tree: Mapping[str, Any], setting: Setting | None, message: str) -> Problem:
    value: Any = tree
    for part in name.split("."):
        value = value.get(part, _MISSING) if isinstance(value, Mapping) else _MISSING
    if setting is None:
        return Problem(name, value, message)
    text = f"allowed: {setting.allowed}"
    if isinstance(value, str) and setting.choices:
        near = difflib.get_close_matches(value, [str(choice) for choice in setting.choices], n=1)
        text += f"; did you mean {near[0]!r}?" if near else ""
    if setting.named:
        from envs.registry import not_imported

        text += not_imported()
    return Problem(name, value, text)


def _report(found: Sequence[Problem], places: Mapping[str, str]) -> str:
    """All problems; ``places`` says of a setting where it was given, where there is a choice."""
    texts = []
    for problem in found:
        given = "" if problem.value is _MISSING else f" = {_shown(problem.value)}"
        place = f" ({places[problem.path]})" if problem.path in places else ""
        texts.append(f"{problem.path}{given}: {problem.message}{place}")
    if len(texts) == 1:
        return texts[0]
    return f"{len(texts)} problems:\n" + "\n".join(f"  {text}" for text in texts)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
