"""Engines that turn prompts into responses under many adapters: vLLM, and transformers as the deterministic reference.

Importing this package imports neither; ``make_engine`` does.
"""

from __future__ import annotations

from actors.engines.base import Engine, EngineSpec, EngineStats, Generation, check_agreement, make_engine

__all__ = ["Engine", "EngineSpec", "EngineStats", "Generation", "check_agreement", "make_engine"]
