"""Which games a client gets when clients are to live in different rooms: disjoint scenes, and the published ``env_disjoint``.

Pure functions from game ids to positions in the list of ids. These change which rooms a client sees, not what actions do in them. Know
nothing of games' texts, of configurations or of training.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Fallback = Literal["skip", "shared", "trial-only"]

PUBLISHED_SEED = 42
PUBLISHED_HOLDOUT: tuple[str, ...] = ("15", "25", "213", "221", "319", "321", "416", "418")
"""The scenes that the published system could hold out: two of each room kind."""


@dataclass(frozen=True)
class Place:
    """What a game's id says. ``spec`` is task type, object and receptacles; ``scene`` the room; ``trial`` tells games apart."""

    spec: str
    scene: str
    trial: str

    @classmethod
    def of(cls, game_id: str) -> Place:
        """Read an id ``<split>/<spec>-<scene>/<trial>``. Raises ``ValueError`` for one of another form."""
        parts = game_id.split("/")
        spec, dash, scene = parts[-2].rpartition("-") if len(parts) >= 2 else ("", "", "")
        if not dash or not spec or not scene:
            raise ValueError(f"game id {game_id!r}: expected <split>/<type>-<object>-<..>-<receptacle>-<scene>/<trial>")
        return cls(spec, scene, parts[-1])


def scene_disjoint(ids: Sequence[str], clients: int, seed: int = 0, severity: float = 1.0) -> list[list[int]]:
    """Positions of every client's games, sorted, such that no two clients share a scene. Every game goes to exactly one client.

    Room kinds are dealt one after the other, scenes with most games first, each to the client that has fewest so far: so clients have about
    as many games, and every room kind while its scenes last. ``severity`` is the share of scenes that belong to one client; the games
    of the others are dealt evenly, so 0 is an even random split. Deterministic in ``seed``.

    Raises ``ValueError`` for an id of another form, a severity outside [0, 1], or more clients than scenes (at severity 1).
    """
    if not 0.0 <= severity <= 1.0:
        raise ValueError(f"severity = {severity:g}; allowed: 0 to 1")
    if clients < 1:
        raise ValueError(f"clients = {clients}; at least 1")
    games: defaultdict[str, list[int]] = defaultdict(list)
    for position, game_id in enumerate(ids):
        games[Place.of(game_id).scene].append(position)
    rng = random.Random(f"scene-disjoint|{seed}")
    order = sorted(games)
    rng.shuffle(order)
    own = set(order[: math.ceil(severity * len(order))])
    if severity == 1.0 and clients > len(own):
        raise ValueError(
            f"{clients} clients cannot have disjoint scenes: the {len(ids)} games lie in {len(own)} scenes; "
            f"allowed: 1 to {len(own)} clients"
        )
    dealt: list[list[int]] = [[] for _ in range(clients)]
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for scene in order:
        if scene in own:
            kinds[_hundred(scene)].append(scene)
    ranks = list(range(clients))
    rng.shuffle(ranks)
    for kind in sorted(kinds):
        held: Counter[int] = Counter()
        for scene in sorted(kinds[kind], key=lambda scene: -len(games[scene])):
            client = min(range(clients), key=lambda c: (held[c], len(dealt[c]), ranks[c]))
            dealt[client] += games[scene]
            held[client] += 1
    shared = [position for scene in order if scene not in own for position in games[scene]]
    rng.shuffle(shared)
    for position in shared:
        dealt[min(range(clients), key=lambda c: (len(dealt[c]), ranks[c]))].append(position)
    return [sorted(positions) for positions in dealt]


def env_disjoint(
    ids: Sequence[str],
    clients: int,
    divergence: float = 0.7,
    fallback: Fallback = "skip",
    holdout: Collection[str] = (),
    seed: int = PUBLISHED_SEED,
) -> list[list[int]]:
    """Positions of every client's games, sorted, as the published constructor of that name chooses them.

    Games of one spec compete: of ``n`` a client gets ``ceil(n / clients * (1 + divergence))``, those with the smallest mixture of a draw
    common to all clients and one of its own. In spite of the name clients are not disjoint, at divergence 0 all get the same games, and the
    number of games depends on the divergence. Specs in one scene only are left out (``skip``), given to all (``shared``) or chosen from
    like the others (``trial-only``). Games in ``holdout`` scenes are left out.

    Raises ``ValueError`` for an id of another form, a divergence outside [0, 1], or an unknown fallback.
    """
    if not 0.0 <= divergence <= 1.0:
        raise ValueError(f"divergence = {divergence:g}; allowed: 0 to 1")
    if clients < 1:
        raise ValueError(f"clients = {clients}; at least 1")
    if fallback not in get_args(Fallback):
        raise ValueError(f"fallback = {fallback!r}: choose one of {', '.join(get_args(Fallback))}")
    specs: defaultdict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for position, game_id in enumerate(ids):
        place = Place.of(game_id)
        if place.scene not in holdout:
            specs[place.spec].append((place.scene, place.trial, position))
    chosen: list[list[int]] = [[] for _ in range(clients)]
    stream = np.random.RandomState()
    for spec, found in specs.items():
        found.sort()
        positions = [position for _, _, position in found]
        if len({scene for scene, _, _ in found}) == 1 and fallback != "trial-only":
            if fallback == "shared":
                for given in chosen:
                    given += positions
            continue
        number = len(positions)
        keep = min(number, max(1, math.ceil(number / clients * (1 + divergence))))
        mark = int.from_bytes(hashlib.sha256(spec.encode()).digest()[:4], "big") & 0x7FFFFFFF
        stream.seed((seed + mark) % 2**31)
        common = stream.rand(number)
        for client, given in enumerate(chosen):
            stream.seed((seed + 1000 * client + (mark & 0xFFFF)) % 2**31)
            private = stream.rand(number)
            order = np.argsort((1 - divergence) * common + divergence * private)
            given += [positions[place] for place in order[:keep]]
    return [sorted(given) for given in chosen]


def _hundred(scene: str) -> str:
    """Scenes of one room kind have numbers in one hundred."""
    return str(int(scene) // 100) if scene.isdigit() else scene
