"""Reading and writing parameters and AdamW moments of a DeepSpeed engine, whatever its ZeRO stage (Rajbhandari et al. 2020).

Owns the differences between stages: 0 keeps everything in place, 1 and 2 keep flat float32 copies of a part of the parameters,
3 partitions the parameters themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from pipeline.config.learner import LearnerConfig
from pipeline.episodes import FloatArray, State
from pipeline.errors import LearnerError
from pipeline.models import check_state
from pipeline.moments import Moments

_MOMENTS = ("exp_avg", "exp_avg_sq")


def deepspeed_config(learner: LearnerConfig, world_size: int) -> dict[str, Any]:
    """DeepSpeed's configuration. Accumulation boundaries are set by hand, so that micro-batches need not be equally many."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "train_batch_size": world_size,
        # Stage 0 would clip without telling the norm: ``ZeroParameters.step`` does it there.
        "gradient_clipping": learner.grad_clip if learner.zero_stage > 0 else 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": learner.zero_stage, "overlap_comm": False},
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
    }


def start_engine(deepspeed: Any, module: torch.nn.Module, learner: LearnerConfig, lr: float, world_size: int) -> Any:
    """DeepSpeed around what ``module`` trains, with AdamW."""
    trained = [p for p in module.parameters() if p.requires_grad]
    adamw = torch.optim.AdamW(
        trained, lr=lr, betas=(learner.beta1, learner.beta2), weight_decay=learner.weight_decay, fused=learner.zero_stage < 3
    )
    engine, *_ = deepspeed.initialize(model=module, optimizer=adamw, config=deepspeed_config(learner, world_size), dist_init_required=False)
    return engine


class ZeroParameters:
    """The trained model's state as arrays. ``named`` maps state names to parameters (of which LoRA may freeze some)."""

    def __init__(self, engine: Any, named: Mapping[str, torch.nn.Parameter], stage: int) -> None:
        self._engine, self.named, self._stage = engine, dict(named), stage
        self.shapes = {name: tuple(getattr(p, "ds_shape", p.shape)) for name, p in named.items()}
        self._trained = {name: p for name, p in self.named.items() if p.requires_grad}

    def load(self, state: State) -> None:
        """Set all parameters. Raises ``LearnerError`` unless names and shapes agree."""
        check_state(state, self.shapes)
        with torch.no_grad(), self._gathered(write=True):
            for name, parameter in self.named.items():
                parameter.copy_(torch.from_numpy(np.array(state[name], np.float32)))
        if self._stage > 0:
            self._engine.optimizer.refresh_fp32_params()
        self._engine.zero_grad()

    def read(self) -> dict[str, FloatArray]:
        """A float32 copy of all parameters."""
        with torch.no_grad(), self._gathered(write=False):
            return {name: p.detach().to("cpu", torch.float32, copy=True).numpy() for name, p in self.named.items()}

    def step(self, grad_clip: float) -> float:
        """Take the optimizer step of the accumulated gradients, clipped to a norm of ``grad_clip``; returns the norm before clipping."""
        if self._stage == 0:
            norm = float(torch.nn.utils.clip_grad_norm_(self._trained.values(), grad_clip))
            self._engine.step()
            return norm
        self._engine.step()
        return float(self._engine.get_global_grad_norm() or 0.0)

    def load_moments(self, state: Moments | None) -> None:
        """Set AdamW's moments; None clears them, as if the optimizer were new."""
        self._zero_moments()
        if state is None:
            return
        missing = sorted(self._trained.keys() - state.exp_avg.keys())
        if missing:
            raise LearnerError(f"optimizer moments do not fit the model: {len(missing)} names missing (first: {missing[0]})")
        optimizer = self._engine.basic_optimizer
        if self._stage == 0:
            for name, parameter in self._trained.items():
                slot = optimizer.state[parameter]
                slot["step"] = torch.tensor(float(state.step), device=parameter.device)
                for key in _MOMENTS:
                    slot[key] = torch.from_numpy(np.array(getattr(state, key)[name], np.float32)).to(parameter.device)
            return
        from deepspeed.utils import safe_set_full_optimizer_state

        for name, parameter in self._trained.items():
            for key in _MOMENTS:
                value = torch.from_numpy(np.array(getattr(state, key)[name], np.float32)).to(parameter.device)
                safe_set_full_optimizer_state(parameter, value, key)
        for slot in optimizer.state.values():
            slot["step"] = torch.full_like(torch.as_tensor(slot["step"], dtype=torch.float32), float(state.step))

    def read_moments(self) -> Moments:
        """A copy of AdamW's moments."""
        optimizer = self._engine.basic_optimizer
        moments: dict[str, dict[str, FloatArray]] = {key: {} for key in _MOMENTS}
        if self._stage > 0:
            from deepspeed.utils import safe_get_full_optimizer_state
        for name, parameter in self._trained.items():
            for key in _MOMENTS:
                value = optimizer.state[parameter].get(key) if self._stage == 0 else safe_get_full_optimizer_state(parameter, key)
                tensor = torch.zeros(self.shapes[name]) if value is None else value
                moments[key][name] = tensor.detach().to("cpu", torch.float32, copy=True).numpy().reshape(self.shapes[name])
        steps = [int(slot["step"]) for slot in optimizer.state.values() if "step" in slot]
        return Moments(max(steps, default=0), moments["exp_avg"], moments["exp_avg_sq"])

    @staticmethod
    def tensors(state: State, device: torch.device) -> dict[str, torch.Tensor]:
        """``state`` as tensors on ``device``."""
        return {name: torch.from_numpy(np.array(value, np.float32)).to(device) for name, value in state.items()}

    def _zero_moments(self) -> None:
        optimizer = self._engine.basic_optimizer
        if self._stage == 0:
            optimizer.state.clear()
            return
        # ZeRO's fragments point into these tensors, so they are emptied in place rather than dropped.
        for slot in optimizer.state.values():
            for value in slot.values():
                if torch.is_tensor(value):
                    value.zero_()

    def _gathered(self, *, write: bool) -> AbstractContextManager[Any]:
        if self._stage < 3:
            return nullcontext()
        from deepspeed import zero

        context: AbstractContextManager[Any] = zero.GatheredParameters(list(self.named.values()), modifier_rank=0 if write else None)
        return context
