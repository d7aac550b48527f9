"""Whether a world can be read: a text classifier guesses the world from what an agent has seen up to a turn, on tasks it was not fitted to.

Everything that is done is done in every world, so only what is seen can tell. What comes after the last action is left out: it is too late.
Beside words the classifier sees how much of the task's text stands in the first and in the last part of the page.
"""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from envs.base import World
from pipeline.diagnose.divergence import Estimate, estimate
from pipeline.diagnose.scripts import Sample, Trace, first_seed, mean, play
from pipeline.diagnose.setup import Settings

SATURATED = 0.02
"""An accuracy this close to the best one counts as reached."""
SEEDS_READ = 3
FEATURES = 4000
FEWEST_TASKS = 4

_WORD = re.compile(r"[a-z]+|[0-9]+")


@dataclass(frozen=True)
class Reading:
    """What can be told of the world at a turn (0: before the first action).

    ``accuracy`` on tasks left out, with its interval over tasks; ``bits`` of mutual information between the world and the guess (corrected
    for the size of the sample); ``confusion[i][j]`` share of texts of world i that were taken for j.
    """

    turn: int
    accuracy: Estimate
    bits: float
    texts: int
    confusion: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Readings:
    """By turn, with what chance would give. ``turn`` is t*, where the accuracy saturates, and ``error`` eta_cls, what remains there."""

    worlds: int
    by_turn: Sequence[Reading]

    @property
    def chance(self) -> float:
        """Accuracy of a blind guess."""
        return 1 / self.worlds

    @property
    def best(self) -> Reading | None:
        """The earliest reading that is as good as any."""
        if not self.by_turn:
            return None
        top = max(reading.accuracy.value for reading in self.by_turn)
        return next(reading for reading in self.by_turn if reading.accuracy.value >= top - SATURATED)

    def accuracy(self, turn: int) -> float:
        """The best accuracy up to ``turn``; that of a blind guess where nothing was classified."""
        return max([r.accuracy.value for r in self.by_turn if r.turn <= turn], default=self.chance)

    def skill(self, turn: int) -> float:
        """How much of the way from chance to certainty the best reading up to ``turn`` goes, in [0, 1]."""
        return max(0.0, (self.accuracy(turn) - self.chance) / (1 - self.chance)) if self.worlds > 1 else 0.0


def read_worlds(world: World, sample: Sample, settings: Settings) -> Readings:
    """Play the sample's scripts where the worlds may show their marks, and classify what is seen, turn by turn."""
    homes = sample.homes
    if len(homes) < 2:
        return Readings(len(homes), ())
    texts = _texts(world, sample, settings)
    found = []
    for turn in range(settings.read_turns):
        if turn not in texts:
            break
        if (reading := _classify(turn, texts[turn], len(homes), settings)) is None:
            break
        found.append(reading)
    return Readings(len(homes), found)


@dataclass(frozen=True)
class _Text:
    home: int
    task: int
    words: str
    place: tuple[float, ...]


def _texts(world: World, sample: Sample, settings: Settings) -> dict[int, list[_Text]]:
    """What was seen up to each turn at which an action is still to come; the same scripts in every world, each text once."""
    envs = [world.make(home.variant) for home in sample.homes]
    revealing = [home.variant != home.mute for home in sample.homes]
    by_turn: dict[int, dict[_Text, None]] = defaultdict(dict)
    repeats = SEEDS_READ if any(sample.draws) else 1
    for task, scripts in enumerate(sample.scripts):
        own = sample.tasks[task]
        wanted = frozenset(_WORD.findall(own.instruction.lower()))
        rng = random.Random(f"read {settings.seed} {own.id}")
        most = max(2, settings.documents // (len(sample.homes) * len(sample.tasks)))
        for number in sorted(rng.sample(range(len(scripts)), min(most, len(scripts)))):
            actions, first = scripts[number].actions, first_seed(task)
            traces = [
                [play(env, own, actions, seed) for seed in range(first, first + repeats)]
                if marked
                else sample.traces[home][task][number][:repeats]
                for home, (env, marked) in enumerate(zip(envs, revealing, strict=True))
            ]
            # A script that has ended in one world tells by going on in another, which an agent learns too late.
            turns = min(len(trace.outcomes) - trace.ended for seeds in traces for trace in seeds)
            for home, seeds in enumerate(traces):
                for trace in seeds:
                    for turn, text in _prefixes(trace, actions, home, task, wanted, min(turns, settings.read_turns)):
                        by_turn[turn][text] = None
    return {turn: list(texts) for turn, texts in by_turn.items()}


def _prefixes(
    trace: Trace, actions: Sequence[str], home: int, task: int, wanted: frozenset[str], turns: int
) -> Iterable[tuple[int, _Text]]:
    words = ""
    for turn in range(turns):
        observation, _, _ = trace.outcomes[turn]
        words += f" [{turn}] {observation}" if not turn else f" do: {actions[turn - 1]} [{turn}] {observation}"
        yield turn, _Text(home, task, words.lower(), _overlap(observation, wanted))


def _overlap(observation: str, wanted: frozenset[str]) -> tuple[float, ...]:
    """Share of words that the task has too: in the first third of the observation, the middle and the last; and its length."""
    words = _WORD.findall(observation.lower())
    third = max(1, len(words) // 3)
    parts = words[:third], words[third:-third], words[-third:]
    shares = [sum(word in wanted for word in part) / max(1, len(part)) for part in parts]
    return *(round(share, 3) for share in shares), math.log1p(len(words)) / 10


def _classify(turn: int, texts: Sequence[_Text], worlds: int, settings: Settings) -> Reading | None:
    """None where too few tasks go on to this turn in every world."""
    import numpy as np
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    groups = np.array([text.task for text in texts])
    homes = np.array([text.home for text in texts])
    folds = min(settings.folds, len(set(groups.tolist())))
    if folds < 2 or len(set(groups.tolist())) < FEWEST_TASKS or len(set(homes.tolist())) < worlds:
        return None
    guesses = np.zeros(len(texts), dtype=int)
    for fitted, left_out in GroupKFold(folds).split(groups, homes, groups):
        vectors = TfidfVectorizer(
            ngram_range=(1, 2), token_pattern=r"\S+", lowercase=False, min_df=2, max_features=FEATURES, sublinear_tf=True
        )

        def features(places: Any, fit: bool, vectors: Any = vectors) -> Any:
            words = [texts[place].words for place in places]
            counted = vectors.fit_transform(words) if fit else vectors.transform(words)
            return hstack([counted, csr_matrix([texts[place].place for place in places])]).tocsr()

        model = LogisticRegression(C=30.0, max_iter=300, tol=1e-3, class_weight="balanced")
        model.fit(features(fitted, True), homes[fitted])
        guesses[left_out] = model.predict(features(left_out, False))
    return _reading(turn, homes.tolist(), guesses.tolist(), groups.tolist(), worlds)


def _reading(turn: int, homes: Sequence[int], guesses: Sequence[int], groups: Sequence[int], worlds: int) -> Reading:
    counts = [[0] * worlds for _ in range(worlds)]
    right: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for home, guess, group in zip(homes, guesses, groups, strict=True):
        counts[home][guess] += 1
        right[group].append((home, float(home == guess)))
    # Worlds count alike within a task, however many different texts they have.
    by_task = []
    for pairs in right.values():
        by_home: dict[int, list[float]] = defaultdict(list)
        for home, hit in pairs:
            by_home[home].append(hit)
        by_task.append(mean([mean(hits) for hits in by_home.values()]))
    confusion = [[count / max(1, sum(row)) for count in row] for row in counts]
    return Reading(turn, estimate(by_task), information(confusion, len(homes)), len(homes), confusion)


def information(confusion: Sequence[Sequence[float]], n: int) -> float:
    """Mutual information (bits) of world and guess for equally frequent worlds, less its expected excess in ``n`` draws
    (Miller and Madow), at least 0."""
    worlds = len(confusion)
    guessed = [sum(row[j] for row in confusion) / worlds for j in range(worlds)]
    bits = math.fsum(
        row[j] / worlds * math.log2(row[j] / guessed[j]) for row in confusion for j in range(worlds) if row[j] > 0 and guessed[j] > 0
    )
    used = sum(share > 0 for share in guessed)
    return max(0.0, bits - (worlds - 1) * (used - 1) / (2 * max(1, n) * math.log(2)))
