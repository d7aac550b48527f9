"""How client updates become one agent: streaming, deterministic, in float64. Needs numpy alone."""

from pipeline.aggregation.base import Rule
from pipeline.aggregation.fedavg import Aggregator, make_aggregator, make_rule, version_name
from pipeline.aggregation.lora import MERGED, is_factor_a, split_merged
from pipeline.aggregation.mean import StreamingMean

__all__ = ["MERGED", "Aggregator", "Rule", "StreamingMean", "is_factor_a", "make_aggregator", "make_rule", "split_merged", "version_name"]
