"""Plug-ins: modules from outside the package that register worlds, variant families and more when they are imported.

Two kinds. *Installed* ones are entry points of the group ``fedagent.plugins``; every process finds them by itself. *Named* ones are asked
for (``--plugins``, setting ``run.plugins``): a module's name, or the path of a ``.py`` file or a package folder. A named one that other
processes could not import by name alone is known as ``FOLDER:MODULE``, and it is imported from that folder and no other. Knows nothing of
what plug-ins register.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from envs.registry import REGISTRIES, RegistryError, importing, nearest

GROUP = "fedagent.plugins"
"""Entry-point group of installed plug-ins; every entry point names a module."""


class PluginError(ValueError):
    """A plug-in is not there or cannot be imported. The message names it and the first cause."""


@dataclass(frozen=True)
class Plugin:
    """A plug-in of this process: how it is known, where it came from, and what it registered (``world corridor``, ...)."""

    name: str
    source: str
    added: tuple[str, ...]


_named: dict[str, None] = {}
_installed: dict[str, str] = {}
_broken: dict[str, str] = {}
_looked = False


def load(entries: Iterable[str]) -> tuple[str, ...]:
    """Import named plug-ins, each once per process; returns them in the form in which other processes find them too.

    Raises ``PluginError`` for one that is not there, fails, or registers nothing.
    """
    names = []
    for entry in entries:
        name = canonical(entry)
        names.append(name)
        if name not in _named:
            before = _registered()
            known = name.rpartition(":")[2] in sys.modules
            _import(name)
            if not known and _registered() == before:
                raise PluginError(f"plug-in {entry!r} registers nothing: call a function such as pipeline.plugins.register_world in it")
            _named[name] = None
    return tuple(names)


def load_installed() -> None:
    """Import the plug-ins of installed distributions, once per process. One that fails is left out and remembered in ``broken``."""
    global _looked
    if _looked:
        return
    _looked = True
    for point in importlib.metadata.entry_points(group=GROUP):
        source = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an installed distribution"
        try:
            _import(point.value.partition(":")[0].strip())
            _installed[point.value.partition(":")[0].strip()] = source
        except PluginError as error:
            _broken[point.name] = f"{error} ({source})"


def loaded() -> tuple[str, ...]:
    """The named plug-ins of this process: what another process must ``load`` to know the same names."""
    return tuple(_named)


def broken() -> dict[str, str]:
    """Installed plug-ins that could not be imported, with the reason."""
    return dict(_broken)


def known() -> list[Plugin]:
    """All plug-ins of this process and what they registered."""
    load_installed()
    sources = {**_installed, **dict.fromkeys(_named, "named")}
    return [Plugin(name, source, tuple(_added_by(name))) for name, source in sources.items()]


def canonical(entry: str) -> str:
    """How every process finds a plug-in: ``MODULE`` where it is installed, else ``FOLDER:MODULE``. Raises ``PluginError`` where there is
    none."""
    folder, colon, module = entry.rpartition(":")
    if colon:
        folder = str(Path(folder).expanduser().absolute())
        if _find(module, folder) is None:
            raise PluginError(f"plug-in {entry!r}: no module {module!r} in {folder} on this machine; install it, or correct the folder")
        return f"{folder}:{module}"
    if os.sep in entry or entry.endswith(".py"):
        return _from_path(entry)
    if not entry or not all(part.isidentifier() for part in entry.split(".")):
        raise PluginError(f"plug-in {entry!r}: expected a module's name, or the path of a .py file or package folder")
    try:
        found = importlib.util.find_spec(entry.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    here = str(Path.cwd())
    if found is None:
        # The `fedagent` command does not look in the working directory by itself.
        if _find(entry, here) is None:
            raise PluginError(f"plug-in {entry!r}: no such module, neither installed nor in {here}{nearest(entry, _modules_in(here))}")
        return f"{here}:{entry}"
    place = _folder(found)
    return entry if place is None or place in _everywhere() else f"{place}:{entry}"


def _from_path(entry: str) -> str:
    path = Path(entry).expanduser().absolute()
    if path.is_dir() and (path / "__init__.py").is_file():
        parts, folder = [path.name], path.parent
    elif path.is_file() and path.suffix == ".py":
        parts, folder = ([] if path.stem == "__init__" else [path.stem]), path.parent
    else:
        what = "is neither a .py file nor a folder with an __init__.py" if path.exists() else "no such file or folder"
        raise PluginError(f"plug-in {entry!r}: {what}")
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return f"{folder}:{'.'.join(parts)}"


def _find(module: str, folder: str) -> ModuleSpec | None:
    """The top-level package or module of ``module`` in ``folder``."""
    return PathFinder.find_spec(module.partition(".")[0], [folder])


def _folder(spec: ModuleSpec) -> str | None:
    """The folder that a top-level module or package lies in; None for one without a file."""
    if spec.submodule_search_locations:
        return str(Path(next(iter(spec.submodule_search_locations))).absolute().parent)
    return str(Path(spec.origin).absolute().parent) if spec.has_location and spec.origin else None


def _everywhere() -> set[str]:
    """Folders that every process of this installation imports from."""
    paths = sysconfig.get_paths()
    return {str(Path(paths[name]).absolute()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def _modules_in(folder: str) -> tuple[str, ...]:
    return tuple(p.stem for p in Path(folder).iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file())


def _import(name: str) -> None:
    folder, _, module = name.rpartition(":")
    try:
        with importing(name):
            if folder:
                _import_top(module.partition(".")[0], folder)
            importlib.import_module(module)
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"plug-in {module!r} cannot be imported: {_first_cause(error)}") from error


def _import_top(top: str, folder: str) -> None:
    """Import the top-level module from ``folder``, whatever else on the path has its name."""
    spec, there = _find(top, folder), sys.modules.get(top)
    if spec is None:
        raise PluginError(f"plug-in {top!r}: no longer in {folder}")
    _on_path(folder)
    if there is not None:
        file = getattr(there, "__file__", None)
        if spec.origin and (file is None or not os.path.exists(file) or not os.path.samefile(file, spec.origin)):
            where = file or "built in"
            raise PluginError(f"plug-in {top!r} in {folder}: another module of that name is loaded ({where}); rename the plug-in")
    elif spec.loader is not None:
        made = importlib.util.module_from_spec(spec)
        sys.modules[top] = made
        try:
            spec.loader.exec_module(made)
        except BaseException:
            sys.modules.pop(top, None)
            raise


def _on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _first_cause(error: BaseException) -> str:
    """The innermost exception, and the line that raised it."""
    while (deeper := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        error = deeper
    if isinstance(error, RegistryError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _registered() -> set[tuple[str, str]]:
    return {(registry.kind, name) for registry in REGISTRIES for name in registry.origins}


def _added_by(plugin: str) -> list[str]:
    """What a plug-in brought: what was registered while it was imported, or by its modules."""
    module = plugin.rpartition(":")[2]
    return [
        f"{registry.kind} {name}"
        for registry in REGISTRIES
        for name, origin in registry.origins.items()
        if origin == plugin or origin == module or origin.startswith(f"{module}.")
    ]
