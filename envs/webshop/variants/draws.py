"""Draws that do not depend on the order in which anything is asked: a number in [0, 1) for any key, the same in every process."""

from __future__ import annotations

import hashlib


def unit(*key: object) -> float:
    """A number in [0, 1), uniform over keys."""
    digest = hashlib.blake2b("\x1f".join(map(str, key)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def affected(share: float, *key: object) -> bool:
    """Whether ``key`` is among the affected ones. Those of a smaller share are among those of a larger one; 0 is none and 1 all."""
    return unit(*key) < share
