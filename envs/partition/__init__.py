"""Who owns which tasks: pure functions from a task list to index sets per client, and what came of them."""

from envs.partition.build import build_partition
from envs.partition.explicit import read_assignment, write_assignment
from envs.partition.hardness import Labels, read_labels, write_labels
from envs.partition.outside import PARTITIONS, deal_outside, register_partition
from envs.partition.spec import Partition, PartitionError, PartitionSpec, concentration, dispersion
from envs.partition.uniform import even_slices, uniform_slices

__all__ = [
    "PARTITIONS",
    "Labels",
    "Partition",
    "PartitionError",
    "PartitionSpec",
    "build_partition",
    "concentration",
    "deal_outside",
    "dispersion",
    "even_slices",
    "read_assignment",
    "read_labels",
    "register_partition",
    "uniform_slices",
    "write_assignment",
    "write_labels",
]
