"""Random streams of a partition, one per purpose: nothing that is drawn for one layer or client moves what is drawn for another."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: object) -> np.random.Generator:
    """A generator of its own for ``purpose`` (words and numbers) under ``seed``; the same in every process."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in (seed, *purpose)).encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
