"""Validation of a WebShop data folder, official or generated: what is in it, whether it loads, and the first thing that is wrong.

Knows how files are read and goals are made from the modules that do it; adds only what a careful look finds beyond them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.webshop.errors import WebShopDataError
from envs.webshop.goals import Goals
from envs.webshop.records import DataFiles, find_files, iter_records, loads, parse_human, parse_product, read_object
from envs.webshop.shop import WebShop

MANIFEST_NAME = "generated.json"
CATEGORIES = frozenset(("beauty", "electronics", "garden", "fashion", "grocery"))


@dataclass
class FolderReport:
    """What ``check_folder`` found. ``problems`` keep the shop from working, ``warnings`` do not; each names file and record."""

    path: Path
    files: dict[str, int] = field(default_factory=dict)
    """File name -> size in bytes."""
    counts: dict[str, int] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)
    goals_hash: str = ""
    """SHA-256 over asin, instruction, attributes, price limit and options of the synthetic goals of profile "fed", in order."""
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def raise_first(self) -> None:
        """Raise ``WebShopDataError`` with the first problem, if there is one."""
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise WebShopDataError(self.problems[0] + more)

    def lines(self) -> list[str]:
        """The report as text lines."""
        out = [f"{self.path}: {'ok' if self.ok else 'NOT OK'}"]
        out += [f"  file      {name:28} {size:>12,} bytes" for name, size in self.files.items()]
        out += [f"  count     {name:28} {count:>12,}" for name, count in self.counts.items()]
        out += [f"  category  {name:28} {count:>12,}" for name, count in self.categories.items()]
        if self.goals_hash:
            out.append(f"  goals     sha256 {self.goals_hash}")
        out += [f"  problem   {text}" for text in self.problems]
        return out + [f"  warning   {text}" for text in self.warnings]


class _Findings:
    """Keeps the first finding of each kind and counts the others."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        self.count: Counter[str] = Counter()

    def add(self, kind: str, text: str) -> None:
        self.first.setdefault(kind, text)
        self.count[kind] += 1

    def texts(self) -> list[str]:
        return [text + (f" ({self.count[kind]} such records)" if self.count[kind] > 1 else "") for kind, text in self.first.items()]


def goals_hash(goals: Goals) -> str:
    """SHA-256 of the goals in order, as the published check value is made."""
    rows = [[goal[name] for name in ("asin", "instruction_text", "attributes", "price_upper", "goal_options")] for goal in goals]
    return hashlib.sha256(json.dumps(rows, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_folder(path: Path | str, cache_dir: Path | str | None = None) -> FolderReport:
    """Read every record of a data folder and report what is in it and what is wrong. Never raises for bad data."""
    report = FolderReport(Path(path).expanduser())
    problems, warnings = _Findings(), _Findings()
    try:
        files = find_files(report.path)
        report.files = {file.name: file.stat().st_size for file in files.present()}
        _check_manifest(report.path, problems)
        _check_records(files, report, problems, warnings)
    except WebShopDataError as error:
        problems.add("folder", str(error))
    if not problems.first:
        _check_goals(report, cache_dir, problems, warnings)
    report.problems, report.warnings = problems.texts(), warnings.texts()
    return report


def _check_manifest(folder: Path, problems: _Findings) -> None:
    manifest = folder / MANIFEST_NAME
    if not manifest.is_file():
        return
    named = read_object(manifest).get("files")
    for name, digest in named.items() if isinstance(named, dict) else []:
        file = folder / name
        if not file.is_file():
            problems.add("manifest", f"{file}: named in {MANIFEST_NAME} but missing. Generate the catalogue again")
        elif hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            problems.add(
                "manifest",
                f"{file}: changed since it was generated. Generate the catalogue again, or delete {MANIFEST_NAME} to keep the change",
            )


def _check_records(files: DataFiles, report: FolderReport, problems: _Findings, warnings: _Findings) -> None:
    attributes = read_object(files.attributes)
    human: dict[str, Any] = read_object(files.human) if files.human else {}
    nouns = read_object(files.nouns) if files.nouns else {}
    seen: dict[str, int] = {}
    counts, categories = Counter[str](), Counter[str]()
    for index, raw in iter_records(files.products):
        counts["records"] += 1
        asin = raw.get("asin") if isinstance(raw, dict) else None
        where = f"{files.products}: record {index} (asin {asin})"
        if isinstance(asin, str):
            if asin in seen:
                counts["repeated"] += 1
                warnings.add("repeated", f"{where}: repeats record {seen[asin]}; only the first is loaded. Remove one of them")
                continue
            if not loads(asin, "fed"):
                counts["skipped"] += 1
                warnings.add("skipped", f"{where}: not loaded, an asin has at most 10 characters and is not 'nan'")
                continue
        try:
            product = parse_product(raw, index, files, attributes, human, nouns)
        except WebShopDataError as error:
            problems.add(f"record: {error.problem[:24]}", str(error))
            continue
        seen[product.asin] = index
        categories[product.category] += 1
        counts["with_instruction"] += product.instruction is not None
        counts["with_human_instruction"] += bool(product.human)
        counts["with_options"] += bool(product.options)
        if product.asin != product.asin.upper():
            problems.add("case", f"{where}: an asin with lower-case letters cannot be opened by a click. Write it in upper case")
        if not product.title.strip():
            warnings.add("title", f"{where}: the name is empty, so no search by title finds it")
        if product.category not in CATEGORIES:
            warnings.add("category", f"{where}: category {product.category!r} is none of {', '.join(sorted(CATEGORIES))}")
        if product.asin not in attributes:
            warnings.add("attributes", f"{where}: not in {files.attributes.name}; profile 'up' refuses this catalogue")
        if any(not values for values in product.options.values()) and product.instruction is not None:
            warnings.add("options", f"{where}: an option has no value, so the product has no goal")
    for asin in human:
        if asin not in seen and files.human is not None:
            parse_human(files.human, asin, human[asin])
            counts["human_without_product"] += 1
    counts["products"] = len(seen)
    counts["attributes_without_product"] = sum(asin not in seen for asin in attributes)
    if not seen and not problems.first:
        problems.add("empty", f"{files.products}: the catalogue holds no product. Generate one, or fetch the file again")
    report.counts, report.categories = dict(counts), dict(sorted(categories.items()))


def _check_goals(report: FolderReport, cache_dir: Path | str | None, problems: _Findings, warnings: _Findings) -> None:
    try:
        goals = WebShop(report.path, cache_dir=cache_dir).goals
        report.counts["goals"] = len(goals)
        report.goals_hash = goals_hash(goals)
    except WebShopDataError as error:
        problems.add("goals", str(error))
    try:
        report.counts["human_goals"] = len(WebShop(report.path, human_goals=True, cache_dir=cache_dir).goals)
    except WebShopDataError:
        report.counts["human_goals"] = 0
