"""The shipped weights: intact, small, for the catalogue of this version, and as good as their manifest says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envs.base import World
from envs.webshop import generate
from pipeline.embedded import MANIFEST, embedded_path, model_key, read_manifest
from pipeline.embedded.build import CATALOGUE_SEED, PRODUCTS, WORLD_OPTIONS, Plan, build
from pipeline.embedded.demos import Amounts
from pipeline.embedded.gates import TOLD, GateError, Gates, Measured, Sampler, check, decisions, success_rate
from pipeline.errors import DataError


def test_the_folder_is_complete_small_and_described() -> None:
    folder = embedded_path()
    manifest = read_manifest(folder)
    assert {path.name for path in folder.iterdir()} == {*manifest["files"], MANIFEST}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= set(manifest["files"])
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    assert manifest["key"] == model_key()
    assert manifest["catalogue"] == {
        "products": PRODUCTS,
        "seed": CATALOGUE_SEED,
        "key": generate.catalogue_key(PRODUCTS, CATALOGUE_SEED),
        **WORLD_OPTIONS,
    }
    check(Measured(**manifest["measured"]), Gates())


def test_a_damaged_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(embedded_path(), folder)
    read_manifest(folder)
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"model\.safetensors has SHA-256"):
        read_manifest(folder)
    weights.unlink()
    with pytest.raises(DataError, match="missing"):
        read_manifest(folder)
    (folder / MANIFEST).write_text("{}")
    with pytest.raises(DataError, match="no readable manifest"):
        read_manifest(folder)


def test_a_manifest_whose_key_was_edited_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(embedded_path(), folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "key": "0" * 16}))
    with pytest.raises(DataError, match="does not fit its files"):
        read_manifest(folder)


def test_the_weights_decide_as_well_as_the_manifest_says(shipped_model: Any, shipped_tokenizer: Any, shop_world: World) -> None:
    measured = read_manifest(embedded_path())["measured"]
    sampler = Sampler(shipped_model, shipped_tokenizer, seed=11)
    tasks = shop_world.tasks("heldout")
    shares = decisions(sampler, shop_world, tasks[:100])
    for kind in ("search", "row", "option", "buy"):
        assert shares[kind] == pytest.approx(measured[kind], abs=0.08), kind
    assert decisions(sampler, shop_world, tasks[:100], "shuffled")["row"] == pytest.approx(measured["row_shuffled"], abs=0.10)
    assert decisions(sampler, shop_world, tasks[:100], variants=TOLD)["buy"] == pytest.approx(measured["told"], abs=0.08)
    # 300 tasks: a standard error of 2.5 points at 24 %
    assert success_rate(sampler, shop_world, tasks[:300], 1.0) == pytest.approx(measured["success"], abs=0.08)


def test_asking_for_the_folder_imports_no_torch() -> None:
    code = "import sys, pipeline.embedded as e; e.embedded_path(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_build_that_misses_the_gates_fails_and_writes_nothing(tmp_path: Path) -> None:
    plan = Plan(amounts=Amounts(episodes=300, results=100, leaving=50, buying=30), sisters=(1001,), lookalikes=(1006,), gate_tasks=20)
    steps = []
    with pytest.raises(GateError, match="greedy row decisions"):
        build(tmp_path / "model", plan=plan, progress=lambda step, done, total: steps.append((step, done, total)))
    assert list(tmp_path.iterdir()) == []
    assert list(dict.fromkeys(step for step, _, _ in steps)) == ["catalogues", "demonstrations", "encoding", "warm start", "gates"]
    assert ("demonstrations", 480, 480) in steps


def test_a_small_build_is_repeatable_and_loads(tmp_path: Path) -> None:
    anything = Gates(success=(0.0, 1.0), search=0.0, row=0.0, row_shuffled=0.0, option=0.0, buy=0.0, told=0.0)
    plan = Plan(
        amounts=Amounts(episodes=300, results=100, leaving=50, buying=30),
        gates=anything,
        sisters=(1001,),
        lookalikes=(1006,),
        gate_tasks=20,
    )
    for name in ("one", "two"):
        build(tmp_path / name, plan=plan, progress=lambda step, done, total: None)
    one, two = read_manifest(tmp_path / "one"), read_manifest(tmp_path / "two")
    assert one["key"] == two["key"]
    assert one["turns"] == 480
    from pipeline.models import check_model_folder, load_model

    check_model_folder(tmp_path / "one", "built")
    assert load_model(tmp_path / "one").config.vocab_size == one["vocabulary"]
