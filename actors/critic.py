"""The critic of a learner: a value function with an optimizer and a DeepSpeed engine of its own, trained on the policy's rows.

Like the policy it is swapped in and out with the client that it belongs to. What its loss is belongs to the algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from actors.policy import Critic
from actors.stepping import Place, over_rows, take_steps
from actors.totals import Totals
from actors.zero import ZeroParameters, start_engine
from pipeline.algorithms.base import Algorithm, MicroBatch, Rows
from pipeline.algorithms.batching import MicroPlan, StepPlan, collate
from pipeline.config.critic import CriticConfig
from pipeline.config.learner import LearnerConfig
from pipeline.episodes import FloatArray, State
from pipeline.errors import LearnerError
from pipeline.models import build_critic, critic_parameters, join_critic
from pipeline.moments import Moments, join

if TYPE_CHECKING:
    from actors.learning import LearnerSettings


class CriticLearner:
    """One worker's part of the critic."""

    def __init__(self, settings: LearnerSettings, algorithm: Algorithm, deepspeed: Any, place: Place) -> None:
        self._algorithm, self._place = algorithm, place
        self._learner: LearnerConfig = settings.learner
        self._config: CriticConfig = settings.critic
        learner = self._learner
        model, head = build_critic(settings.model_path, settings.model, seed=0)
        self.module = Critic(
            model.to(place.device), head.to(place.device), settings.model.dtype, gradient_checkpointing=learner.gradient_checkpointing
        )
        self.engine = start_engine(deepspeed, self.module, learner, self._config.lr, place.world_size)
        self.parameters = ZeroParameters(self.engine, critic_parameters(model, head), learner.zero_stage)
        self._fresh = self.parameters.read()

    def load(self, shared: State, kept: State, moments: Moments | None) -> None:
        """Take a client's critic in: the shared one, or its own, which is a fresh one at the client's first visit.

        Raises ``LearnerError`` where the shared state has no critic although it should.
        """
        if self._config.federate and not shared:
            raise LearnerError("the state holds no critic; with critic.federate = true it travels with the policy")
        state = shared if self._config.federate else kept or self._fresh
        self.parameters.load(state)
        self.parameters.load_moments(moments)

    def values(self, rows: Rows) -> list[FloatArray]:
        """Values of all response tokens, by row, in the critic's own units."""

        def forward(batch: MicroBatch) -> torch.Tensor:
            values: torch.Tensor = self.engine(batch.input_ids, batch.positions)
            return values

        return over_rows(rows, forward, self._place)

    def train(self, who: str, rows: Rows, plans: Sequence[StepPlan]) -> dict[str, float]:
        """Fit the values to their targets, one optimizer step per plan; scalars about it. Raises ``LearnerError`` naming ``who``."""
        totals = Totals(self._place.world_size, self._place.device)

        def loss(step: int, micro: MicroPlan, last: bool) -> torch.Tensor:
            del last
            batch = collate(rows, micro, device=self._place.device)
            out = self._algorithm.value_loss(batch, self.engine(batch.input_ids, batch.positions))
            if batch.weight:
                totals.add(out.sums, out.maxima)
            value: torch.Tensor = out.total * (batch.weight * self._place.world_size / plans[step].tokens)
            return value

        taken = take_steps(
            self.engine,
            self.parameters,
            plans,
            loss,
            place=self._place,
            grad_clip=self._learner.grad_clip,
            who=f"{who}, critic",
            setting="critic.lr",
        )
        return {**totals.means(taken.tokens), "critic_grad_norm": taken.grad_norm}

    def take_along(self, policy: State, moments: Moments | None) -> tuple[dict[str, FloatArray], Moments | None]:
        """The client's state and what it keeps, the critic included: in the state where critics are averaged, else with the client."""
        state = self.parameters.read()
        keep = self._learner.optimizer_state != "reset"
        own = self.parameters.read_moments() if keep else None
        if self._config.federate:
            return join_critic(policy, state), join(moments, own, {}) if keep else None
        return dict(policy), join(moments, own, state)
