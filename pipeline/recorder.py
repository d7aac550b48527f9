"""Sends every record to the run folder's log, the tracker and the terminal, and says where episodes are kept.

Owns which episodes stay in the run folder. Knows nothing of rounds beyond the records it is given.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.client import ClientFailure
from pipeline.config import RunConfig
from pipeline.progress import Progress
from pipeline.run_folder import RunFolder
from pipeline.runlog import RunLog, read_history
from pipeline.services import EpisodeLogTarget
from pipeline.tracking import Tracker

SAMPLED_TRAIN_EPISODES = 2
SAMPLED_HELDOUT_EPISODES = 40
"""Episodes kept per batch with ``save_episodes = "sample"``: enough to look at, small on disk."""


class RunRecorder:
    """The recorder of one run (``pipeline.federation.Recorder``)."""

    def __init__(self, config: RunConfig, folder: RunFolder, log: RunLog, tracker: Tracker, progress: Progress) -> None:
        self._config, self._folder, self._log, self._tracker, self._progress = config, folder, log, tracker, progress
        self._episodes = self._tokens = 0

    def record(self, record: Mapping[str, object]) -> None:
        """Keep a record everywhere."""
        self._log.write(record)
        self._tracker.record(record)
        if record["kind"] == "round":
            self._episodes = self._tokens = 0
            self._progress.round(record)
            if lost := record.get("failed_episodes"):
                kept = self._config.save_episodes != "none"
                named = "are named there" if kept else "would be named there with run.save_episodes = sample"
                self._progress.warn(
                    f"round {record['round']}: {lost} episodes were left out, because their environment hung or broke; "
                    f"their tasks {named}: {self._folder.episodes}"
                )
        elif record["kind"] == "evaluation":
            self._progress.evaluation(record)

    def resume(self, record: Mapping[str, object]) -> None:
        """Keep the record of the round that a checkpoint closes, if the run ended between the two."""
        if not any(r["round"] == record["round"] for r in read_history(self._folder.metrics).rounds):
            self.record(record)

    def failed(self, failed: ClientFailure) -> None:
        """Keep the traceback of a failed client on the client's side; only its first line goes further."""
        path = self._folder.write_failure(failed)
        self._progress.warn(f"client {failed.client} failed in round {failed.round}; traceback in {path}")

    def batch(self, scalars: Mapping[str, float]) -> None:
        """Count a finished rollout batch."""
        self._episodes += int(scalars["episodes"])
        self._tokens += int(scalars["tokens_prompt"] + scalars["tokens_response"])
        self._progress.episodes(self._episodes, self._tokens)

    def phase(self, text: str) -> None:
        """Show what is happening."""
        self._progress.phase(text)

    def episode_log(self, kind: str, client: str, round: int, epoch: int) -> EpisodeLogTarget | None:
        """Where episodes of this batch go. Evaluation before training and the sampled ones of each client are kept by default."""
        if self._config.save_episodes == "none":
            return None
        sampled = SAMPLED_HELDOUT_EPISODES if kind == "heldout" else SAMPLED_TRAIN_EPISODES
        limit = None if self._config.save_episodes == "all" else sampled
        return EpisodeLogTarget(self._folder.episodes / f"{kind}-{client}.jsonl", round, epoch, limit)
