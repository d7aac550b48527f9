"""Plans against clusters, without a cluster."""

from __future__ import annotations

import pytest

from actors.placement import Need, check_fit, needs, totals
from pipeline.config import Config, LearnerConfig, ResourcesConfig, RolloutConfig, TrackingConfig
from pipeline.errors import PlacementError


def test_needs_follow_the_configuration() -> None:
    config = Config(
        rollout=RolloutConfig(engines=2, env_workers=3, tensor_parallel=2),
        learner=LearnerConfig(groups=2, workers=4),
        resources=ResourcesConfig(engine_gpus=2, learner_gpus=1),
        tracking=TrackingConfig(mlflow=False),
    )
    by_role = {need.role: need for need in needs(config)}
    assert by_role["rollout"].count == 2
    assert by_role["rollout"].gpus == 2
    assert by_role["learner"].count == 8
    assert by_role["environment"].count == 2 * 3
    assert by_role["tracker"].count == 0
    assert totals(needs(config))["GPU"] == 2 * 2 + 8


def test_the_default_plan_fits_two_cores() -> None:
    check_fit(needs(Config()), [{"CPU": 2.0}])


def test_too_little_says_what_is_missing_and_who_wants_it() -> None:
    with pytest.raises(PlacementError, match=r"GPU: the plan needs 4, the cluster has 0.*4 learner x 1 CPU 1 GPU"):
        check_fit((Need("learner", 4, 1.0, 1.0),), [{"CPU": 8.0}])


def test_enough_in_total_but_no_node_large_enough() -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 2.0}]
    check_fit((Need("rollout", 2, 2.0),), nodes)
    with pytest.raises(PlacementError, match=r"no node has room for one more rollout.*largest of 2 nodes has 2 CPU"):
        check_fit((Need("rollout", 1, 3.0),), nodes)


def test_a_bundle_is_never_empty() -> None:
    assert Need("tracker", 1, 0.0).bundle() == {"CPU": 0.001}
