"""Finding, importing and naming plug-ins: by module, by path, installed; and what is said of those that cannot be used."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs import plugins
from envs.base import WORLDS, World, WorldSpec, make_world, register_world
from envs.plugins import PluginError, canonical, load
from envs.registry import Registry, RegistryError, require_subclass
from tests.plugin_state import EXAMPLES, THERMOSTAT, forgotten_afterwards

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with forgotten_afterwards():
        yield


def write(folder: Path, name: str, text: str = "") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


REGISTERS = "from envs import register_world\nregister_world('{0}', 'somewhere:{0}')\n"


def test_a_file_is_loaded_once_and_its_names_are_known() -> None:
    assert load([str(THERMOSTAT)]) == (f"{EXAMPLES}:thermostat",)
    world = WORLDS.get("thermostat")
    assert load([f"{EXAMPLES}:thermostat", str(THERMOSTAT)]) == (f"{EXAMPLES}:thermostat",) * 2
    assert WORLDS.get("thermostat") is world
    assert plugins.loaded() == (f"{EXAMPLES}:thermostat",)
    assert [(p.name, p.added) for p in plugins.known()] == [(f"{EXAMPLES}:thermostat", ("world thermostat",))]


def test_a_module_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "my_world.py", REGISTERS.format("mine"))
    write(tmp_path, "kit/__init__.py")
    write(tmp_path, "kit/more/__init__.py", "from kit.more import parts")
    parts = write(tmp_path, "kit/more/parts.py", REGISTERS.format("parts"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert canonical("my_world") == canonical("my_world.py") == f"{tmp_path}:my_world"
    assert canonical("kit.more") == canonical("kit/more") == canonical("kit/more/__init__.py") == f"{tmp_path}:kit.more"
    assert canonical(str(parts)) == f"{tmp_path}:kit.more.parts"
    load(["my_world", "kit.more"])
    assert {"mine", "parts"} <= set(WORLDS.names())
    monkeypatch.chdir(ROOT)
    assert load([f"{tmp_path}:my_world"]) == (f"{tmp_path}:my_world",)


def test_what_every_process_can_import_keeps_its_name() -> None:
    assert canonical("json") == "json"
    assert canonical("numpy.linalg") == "numpy.linalg"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("my_wrold", ["'my_wrold'", "neither installed nor in", "did you mean 'my_world'"]),
        ("", ["expected a module's name"]),
        ("my-world", ["'my-world'", "expected a module's name, or the path"]),
        ("./gone.py", ["no such file or folder"]),
        ("./data", ["neither a .py file nor a folder with an __init__.py"]),
        ("/nowhere:my_world", ["no module 'my_world' in /nowhere on this machine"]),
        ("idle", ["'idle' registers nothing", "register_world"]),
        ("typo", ["'typo' cannot be imported", "SyntaxError", "typo.py, line 2"]),
        ("needs", ["'needs' cannot be imported", "ModuleNotFoundError: No module named 'not_there'", "deep.py, line 3"]),
        ("thief", ["'thief' cannot be imported: world 'bandit' is taken (by this package)"]),
        ("quitter", ["'quitter' cannot be imported", "SystemExit"]),
        ("half", ["'half' cannot be imported", "Half is no subclass of envs.base.World"]),
        ("json", ["'json' registers nothing"]),
    ],
)
def test_what_cannot_be_loaded_is_named_with_its_first_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, words: list[str]
) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path, "my_world.py", REGISTERS.format("mine"))
    write(tmp_path, "idle.py", "x = 1\n")
    write(tmp_path, "typo.py", "x = 1\ny = (\n")
    write(tmp_path, "deep.py", "\n\nimport not_there\n")
    write(tmp_path, "needs.py", "try:\n    import deep\nexcept ImportError as error:\n    raise RuntimeError('wrapped') from error\n")
    write(tmp_path, "thief.py", REGISTERS.format("bandit"))
    write(tmp_path, "quitter.py", "raise SystemExit(3)\n")
    write(tmp_path, "half.py", "from envs import register_world\n@register_world('half')\nclass Half: ...\n")
    monkeypatch.chdir(tmp_path)
    if entry == "json":
        monkeypatch.delitem(sys.modules, "json")
    with pytest.raises(PluginError) as error:
        load([entry])
    for word in words:
        assert word in str(error.value)
    assert plugins.loaded() == ()


def test_another_module_of_the_name_is_not_taken_for_the_plugin(tmp_path: Path) -> None:
    write(tmp_path, "colorsys.py", REGISTERS.format("mine"))
    import colorsys

    with pytest.raises(PluginError, match=r"another module of that name is loaded .*rename the plug-in"):
        load([str(tmp_path / "colorsys.py")])
    assert sys.modules["colorsys"] is colorsys


def test_the_file_that_was_named_is_loaded_even_where_an_installed_module_has_its_name(tmp_path: Path) -> None:
    assert "nntplib" not in sys.modules
    write(tmp_path, "nntplib.py", REGISTERS.format("mine"))
    load([str(tmp_path / "nntplib.py")])
    assert "mine" in WORLDS.names()


def distribution(folder: Path, name: str, point: str, module: str) -> None:
    """What an installer leaves of a distribution with one entry point."""
    info = f"{name}-1.2.dist-info"
    write(folder, f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    write(folder, f"{info}/entry_points.txt", f"[fedagent.plugins]\n{point} = {module}\n")


def test_installed_plugins_are_found_by_every_process(tmp_path: Path) -> None:
    write(tmp_path, "shops_of_mine.py", REGISTERS.format("corner_shop"))
    write(tmp_path, "broken_one.py", "import not_there_at_all\n")
    distribution(tmp_path, "shops-of-mine", "shops", "shops_of_mine")
    distribution(tmp_path, "broken-one", "broken", "broken_one")
    code = """
from envs.base import world_names, make_world
from envs import plugins
assert "shops_of_mine" not in __import__("sys").modules, "imported before anybody asked for a name"
print("corner_shop" in world_names(), plugins.loaded(), [(p.name, p.source, p.added) for p in plugins.known()])
print(plugins.broken())
try:
    make_world("corner_shopp")
except ValueError as error:
    print(error)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=tmp_path, check=True)
    known, broken, unknown = done.stdout.splitlines()
    assert known == "True () [('shops_of_mine', 'shops-of-mine 1.2', ('world corner_shop',))]"
    assert "'broken_one' cannot be imported: ModuleNotFoundError: No module named 'not_there_at_all'" in broken
    assert "(broken-one 1.2)" in broken
    assert "unknown world 'corner_shopp'" in unknown
    assert "did you mean 'corner_shop'" in unknown
    assert "installed plug-in 'broken' could not be imported" in unknown
    words = ["--world.name=corner_shopp", "--aggregation.rule=median", "--dry-run"]
    for given in (words[1:], words[::2]):
        refused = subprocess.run(
            [sys.executable, "-m", "pipeline.run", *given], capture_output=True, text=True, env=env, cwd=tmp_path, check=False
        )
        assert refused.returncode == 2
        assert "installed plug-in 'broken' could not be imported" in refused.stderr, refused.stderr


def test_a_spec_takes_its_plugins_along_to_another_process(tmp_path: Path) -> None:
    load([str(THERMOSTAT)])
    spec = WorldSpec("thermostat", {"heldout": 7})
    assert spec.plugins == (f"{EXAMPLES}:thermostat",)
    code = "import pickle, sys; print(len(pickle.loads(sys.stdin.buffer.read()).build().tasks('heldout')))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(spec), capture_output=True, cwd=tmp_path, env=env, check=False)
    assert done.stdout.split() == [b"7"], done.stderr.decode()


class Still(World):
    def tasks(self, split):  # type: ignore[no-untyped-def]
        return []

    def make(self, variant="default"):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def oracle(self, task, variant="default"):  # type: ignore[no-untyped-def]
        return []


def test_names_are_given_once() -> None:
    register_world("still", Still)
    register_world("still", Still)
    assert Still.name == "still"
    with pytest.raises(RegistryError, match=r"world 'still' is taken \(by tests.envs.test_plugins\)"):
        register_world("still", lambda: Still())
    with pytest.raises(RegistryError, match="the class calls itself 'still'"):
        register_world("quiet", Still)
    with pytest.raises(RegistryError, match="a name has small letters"):
        register_world("Not A Name", "a:b")
    with pytest.raises(RegistryError, match="neither a World class nor a function"):
        register_world("number", 3)  # type: ignore[call-overload]


def test_a_world_that_lacks_a_part_is_refused_with_what_it_lacks() -> None:
    class Part(World):
        def tasks(self, split):  # type: ignore[no-untyped-def]
            return []

    with pytest.raises(RegistryError, match=r"Part lacks make, oracle"):
        register_world("part", Part)


def test_a_factory_that_makes_no_world_is_found_out() -> None:
    register_world("wrong", lambda: 3)
    with pytest.raises(RegistryError, match="its factory made a int, no World"):
        make_world("wrong")


def test_texts_are_imported_at_first_use() -> None:
    things: Registry[type] = Registry("thing", {"decimal": "decimal:Decimal"})
    assert things.get("decimal").__name__ == "Decimal"
    with pytest.raises(RegistryError, match=r"unknown thing 'decimals' \(known: decimal\); did you mean 'decimal'"):
        things.get("decimals")
    with pytest.raises(RegistryError, match=r"thing 'x': builtins\.int is no subclass"):
        require_subclass("thing", "x", int, World)
