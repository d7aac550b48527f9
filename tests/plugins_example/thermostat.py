"""A world of one's own with a family of variants: rooms whose warmth is set with two arms, some of them wired the other way round."""

from random import Random

from envs import Task, TextEnv, World, register_world
from envs.reveal import mark
from envs.variants import DEFAULT, Family

ARMS = {"a": 1, "b": -1}


class Room(TextEnv):
    """Reach the wanted temperature: arm a warms by a degree and arm b cools, or the other way round where the room is reversed."""

    def __init__(self, world, variant):
        self.variant, self.mark = variant, mark(variant, world.families, f"Arm {'b' if variant.member == 'reversed' else 'a'} is up")

    def reset(self, *, seed=None, options=None):
        self.task = options["task"]
        self.now = self.task.payload["start"]
        self.sign = -1 if self.variant.member == "reversed" and self.variant.touches(self.task.id) else 1
        return self.page()

    def step(self, action):
        self.now += self.sign * ARMS.get(action, 0)
        text, info = self.page()
        return text, 10.0 * info["success"], info["success"], False, info

    def page(self):
        there = self.now == self.task.payload["wanted"]
        info = {"admissible": list(ARMS), "score": float(there), "success": there}
        return f"It is {self.now}. Arms: a, b. {self.mark}".strip(), info


@register_world("thermostat")
class Thermostat(World):
    """Tasks: from every temperature to every one that is up to four degrees warmer or cooler."""

    families = {"wiring": Family("wiring", "dynamics", ("control", "reversed"), "the arms are wired the other way round")}  # noqa: RUF012

    def __init__(self, train=400, heldout=100, seed=0, max_steps=6):
        rooms = [(start, start + way) for start in range(10, 90) for way in (-4, -3, -2, -1, 1, 2, 3, 4)]
        Random(seed).shuffle(rooms)
        made = [
            Task(f"{start}-to-{wanted}", f"Go {way} to {wanted}.", way, {"start": start, "wanted": wanted})
            for start, wanted in rooms
            if (way := "up" if wanted > start else "down")
        ]
        self.split, self.max_steps = {"heldout": made[:heldout], "train": made[heldout : heldout + train]}, max_steps

    def tasks(self, split):
        return self.split[split]

    def make(self, variant=DEFAULT):
        return Room(self, self.variant(variant))

    def oracle(self, task, variant=DEFAULT):
        room = self.make(variant)
        room.reset(options={"task": task})
        way = task.payload["wanted"] - task.payload["start"]
        return ["a" if way * room.sign > 0 else "b"] * abs(way)
