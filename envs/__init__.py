"""Worlds that agents act in: pure Python, no Ray, no torch."""

from envs.base import SPLITS, Split, Task, TextEnv, World, WorldSpec, make_world, register_world, world_names

__all__ = ["SPLITS", "Split", "Task", "TextEnv", "World", "WorldSpec", "make_world", "register_world", "world_names"]
