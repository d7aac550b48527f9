"""Who owns which tasks: pure functions from a task list to index sets per client."""

from envs.partition.uniform import uniform_slices

__all__ = ["uniform_slices"]
