from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from envs.bandit import BanditWorld
from pipeline.diagnose import Diagnosis, diagnose
from pipeline.diagnose.command import Federation, federation_of, main, saved_visits
from pipeline.diagnose.page import render, write_page
from pipeline.errors import ConfigError, DataError
from tests.browser import Browser, browser, browser_process  # noqa: F401
from tests.pipeline.diagnose.cases import QUICK, clients_in
from tests.pipeline.report.synthetic import episode

BANDIT = ["--world.name", "bandit", "--federation.clients", "6", "--federation.tasks_per_client", "10"]
CONFLICT = [*BANDIT, "--world.variant.family", "conflict", "--tasks", "12"]


@pytest.fixture(scope="module")
def conflict() -> Diagnosis:
    world = BanditWorld(arms=4, delta=0.8)
    return diagnose(world, clients_in(world, [f"conflict:{arm}" for arm in "abcd"], n=8), QUICK)


def test_a_configuration_becomes_table_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CONFLICT, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "They contradict each other, and it can only be felt" in printed
    assert "conflict:a" in printed
    data = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert (data["verdict"]["kind"], data["clients"], data["worlds"], data["matched_tasks"]) == ("conflict", 6, 2, 12)
    assert data["verdict"]["floor"] == pytest.approx(0.25, abs=0.05)
    assert "B delta / 2" in (tmp_path / "out" / "diagnosis.html").read_text()


def test_a_file_and_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "two-houses.toml"
    config.write_text('[world]\nname = "bandit"\n[world.variant]\nfamily = "conflict"\n[federation]\nclients = 4\ntasks_per_client = 10\n')
    assert main(["--config", str(config), "--world.variant.reveal", "hint", "--json", "--tasks", "12"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"]["kind"] == "revealed"
    assert [home["clients"] for home in data["homes"]] != []
    assert not (tmp_path / "diagnosis").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([*BANDIT, "--world.variant.family", "conflct"], "did you mean 'conflict'"),
        ([*BANDIT, "--world.variant.severity", "2"], "severity"),
        ([*BANDIT, "--world.variant.family", "conflict", "--world.variant.members", "3"], "this world has the arms a, b"),
        (["--world.nme", "bandit"], "world.name"),
        (["--episodes", "nothing.jsonl", *BANDIT], "nothing.jsonl: no such episode file"),
        (["--checkpoint", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_bad_input_is_one_message(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) in (ConfigError.exit_code, DataError.exit_code, 9)
    assert complaint in capsys.readouterr().err


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("")
    assert main([*CONFLICT, "--out", str(tmp_path / "taken")]) == ConfigError.exit_code
    assert "choose another folder" in capsys.readouterr().err


def test_saved_episodes_say_where_a_policy_went(tmp_path: Path) -> None:
    world = BanditWorld()
    federation = Federation(world, clients_in(world, ["default"]))
    path = tmp_path / "train.jsonl"
    known, unknown = episode(0), episode(1)
    known["task_id"] = world.tasks("heldout")[3].id
    path.write_text("".join(json.dumps(record) + "\n" for record in (known, unknown)))
    (visit,) = saved_visits(path, federation)
    assert visit.task == world.tasks("heldout")[3]
    assert visit.actions == tuple(turn["action"] for turn in known["turns"])
    path.write_text(json.dumps(unknown) + "\n")
    with pytest.raises(DataError, match="no episode in it is on a task of this federation"):
        saved_visits(path, federation)


def test_a_federation_has_the_clients_of_a_run() -> None:
    from pipeline.config.load import load_config

    federation = federation_of(load_config(None, [*BANDIT, "--world.variant.family", "conflict"]))
    assert len(federation.clients) == 6
    assert sorted(str(setup.variant) for setup in federation.clients.values()) == ["conflict:a"] * 3 + ["conflict:b"] * 3
    assert all(len(setup.tasks) == 10 for setup in federation.clients.values())


def test_diagnosing_imports_neither_ray_nor_torch() -> None:
    code = f"""import sys
from pipeline.diagnose.command import main
assert main({[*CONFLICT, "--json"]!r}) == 0
print([m for m in ("ray", "torch", "vllm", "transformers") if m in sys.modules], file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"


# --- the page ------------------------------------------------------------------------------------------------------------------


def test_the_page_is_one_file_with_the_verdict_on_top(conflict: Diagnosis) -> None:
    page = render(conflict, "four arms")
    text = re.sub(r"<[^>]+>", " ", page.split("<body>")[1])
    assert text.index(conflict.verdict.title) < text.index("Answers that differ")
    assert not re.search(r'(src|href)="(?!data:)', page)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))  # type: ignore[union-attr]
    assert len(data["tables"]["pairs"]["rows"]) == 6
    assert len(data["tables"]["pairs"]["rows"][0]) == len(data["tables"]["pairs"]["columns"])
    assert data["tables"]["reading"]["rows"][0][0] == 0


def test_names_are_escaped(conflict: Diagnosis) -> None:
    assert "<img" not in render(conflict, "<img src=x>")


def test_one_world_has_a_page_too(tmp_path: Path) -> None:
    world = BanditWorld()
    page = write_page(diagnose(world, clients_in(world, ["default"]), QUICK), tmp_path / "a" / "d.html", "one").read_text()
    assert "The worlds are alike" in page
    assert "Between worlds" not in page


@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(conflict: Diagnosis, tmp_path: Path, browser: Browser, width: int) -> None:  # noqa: F811
    browser.open(write_page(conflict, tmp_path / "d.html", "four arms"), width=width)
    assert browser.errors() == []
    assert browser.requests() == []
    assert browser.overflow() == 0
    assert browser.text("#verdict h2") == conflict.verdict.title
    assert browser.count("#maps rect") == 3 * 4 * 3
    browser.js("document.querySelector('#maps rect').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert "conflict:" in browser.text("#tip")
