"""Every setting is read where it takes effect: a setting that nothing reads is a promise that nothing keeps.

Looks for attribute accesses such as ``config.federation.rounds`` or, where a name is known to hold a section (an annotated argument or
field, or an assignment from one), ``federation.rounds``. The configuration package itself does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pipeline.config import Config
from pipeline.config.base import Section
from pipeline.config.fields import settings

ROOT = Path(__file__).resolve().parents[3]

NOT_YET_READ: frozenset[str] = frozenset()
"""Settings whose code is being written; empty in a release."""


def sections(section: type[Section] = Config, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Class name and dotted prefix of every section."""
    yield section.__name__, prefix
    for name, info in section.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from sections(info.annotation, f"{prefix}.{name}".lstrip("."))


CLASSES = dict(sections())
PREFIXES = frozenset(CLASSES.values())


class Reads(ast.NodeVisitor):
    """Settings that one file reads."""

    def __init__(self) -> None:
        self.variables: dict[str, set[str]] = {}
        self.attributes: dict[str, set[str]] = {}
        self.calls: dict[str, set[str]] = {}
        self.found: set[str] = set()

    def learn(self, tree: ast.AST) -> None:
        """Which names hold which sections. Assignments are followed until nothing new turns up."""
        for node in ast.walk(tree):
            match node:
                case ast.arg(arg=name, annotation=ast.expr() as annotation):
                    self.hold(self.variables, name, named_sections(annotation))
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    self.hold(self.variables, name, named_sections(annotation))
                    self.hold(self.attributes, name, named_sections(annotation))
                case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                    self.hold(self.attributes, name, named_sections(annotation))
                case ast.FunctionDef(name=name, returns=ast.expr() as annotation):
                    self.hold(self.calls, name, named_sections(annotation))
        before = -1
        while before != (before := sum(len(held) for held in (*self.variables.values(), *self.attributes.values()))):
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self.learn_assignment(target, node.value)

    def hold(self, table: dict[str, set[str]], name: str, prefixes: set[str]) -> None:
        if prefixes:
            table.setdefault(name, set()).update(prefixes)

    def learn_assignment(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    self.learn_assignment(one, other)
            case ast.Name(id=name), _:
                self.hold(self.variables, name, self.paths(value) & PREFIXES)
            case ast.Attribute(attr=name), _:
                self.hold(self.attributes, name, self.paths(value) & PREFIXES)

    def paths(self, node: ast.expr) -> set[str]:
        """Dotted settings or sections that an expression may stand for."""
        match node:
            case ast.Name(id=name):
                return self.variables.get(name, set())
            case ast.Attribute(value=value, attr=name):
                return {f"{prefix}.{name}".lstrip(".") for prefix in self.paths(value)} | self.attributes.get(name, set())
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self.calls.get(name, set())
        return set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.found |= self.paths(node)
        self.generic_visit(node)


def named_sections(annotation: ast.expr) -> set[str]:
    """Prefixes of the section classes that an annotation names."""
    words = {node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in ast.walk(annotation)}
    return {CLASSES[word] for word in words & CLASSES.keys()}


def reads(source: str) -> set[str]:
    tree, visitor = ast.parse(source), Reads()
    visitor.learn(tree)
    visitor.visit(tree)
    return visitor.found & {setting.path for setting in settings()}


def test_the_search_finds_what_is_read_and_nothing_else() -> None:
    source = """
def f(config: Config, learner: LearnerConfig, other: Thing) -> None:
    federation, rollout = config.federation, config.rollout
    print(config.run.seed, federation.rounds, learner.lr, other.lr, rollout.engines, other.federation.quorum)
    config.model.lora = 3
    lora = config.model.lora
    lora.rank
"""
    assert reads(source) == {"run.seed", "federation.rounds", "learner.lr", "rollout.engines", "model.lora.rank"}


def test_every_setting_is_read() -> None:
    files = [p for package in ("pipeline", "actors", "envs") for p in (ROOT / package).rglob("*.py") if p.parent.name != "config"]
    found: set[str] = set()
    for path in files:
        found |= reads(path.read_text())
    unread = {setting.path for setting in settings()} - found
    assert unread - NOT_YET_READ == set(), "settings that nothing reads"
    assert NOT_YET_READ - unread == set(), "take these off the list: they are read by now"
