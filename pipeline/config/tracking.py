"""Section ``tracking``: MLflow."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class TrackingConfig(Section):
    """One writer, explicit run ids."""

    mlflow: bool = Field(True, description="Record the run in MLflow.")
    uri: str | None = Field(None, description="Tracking server. Default: MLFLOW_TRACKING_URI, else a SQLite file in the run folder.")
    experiment: str = Field("fedagent", min_length=1, description="MLflow experiment.")
    clients: bool = Field(True, description="A nested run per client with its own metrics.")
