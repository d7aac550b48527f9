"""Rules across settings: every refusal by example, every accepted neighbour, and that defaults are silent."""

from __future__ import annotations

import pytest

from pipeline.config import Config
from pipeline.config.load import load_config, resolve
from pipeline.config.rules import problems
from pipeline.errors import ConfigError

REFUSED: dict[str, tuple[str, list[str]]] = {
    # what is refused: (overrides, what the message must say)
    "more clients per round than clients": (
        "--federation.clients 4 --federation.clients_per_round 5",
        ["federation.clients_per_round = 5", "federation.clients = 4", "1 to 4"],
    ),
    "local client that does not exist": (
        "--federation.mode local --federation.local_client 8",
        ["federation.local_client = 8", "0 to 7"],
    ),
    "local client without local mode": ("--federation.local_client 0", ["federation.local_client = 0", "cannot matter", "federated"]),
    "local client in centralized mode": ("--federation.mode centralized --federation.local_client 1", ["cannot matter", "centralized"]),
    "quorum of one": ("--federation.mode local --federation.quorum 0.5", ["federation.quorum = 0.5", "cannot matter"]),
    "weights of one": (
        "--federation.mode centralized --aggregation.weighting tokens",
        ['aggregation.weighting = "tokens"', "cannot matter"],
    ),
    "clients of one": ("--federation.mode local --evaluation.clients", ["evaluation.clients = true", "cannot matter"]),
    "average of one": ("--federation.mode local --learner.optimizer_state average", ["learner.optimizer_state", "use keep or reset"]),
    "batch larger than a client's tasks": (
        "--federation.tasks_per_client 5",
        ["algorithm.tasks_per_epoch = 8", "owns 5", "federation.tasks_per_client"],
    ),
    "batch larger than the pooled tasks": (
        "--federation.mode centralized --federation.clients 4 --federation.tasks_per_client 1",
        ["algorithm.tasks_per_epoch = 8", "owns 4"],
    ),
    "rank without an adapter": (
        "--model.adapter full --model.lora.rank 8",
        ["model.lora.rank = 8", "cannot matter", "model.adapter = full"],
    ),
    "alpha without an adapter": ("--model.adapter full --model.lora.alpha 8", ["model.lora.alpha = 8", "cannot matter"]),
    "targets without an adapter": ("--model.adapter full --model.lora.targets q_proj", ["model.lora.targets", "cannot matter"]),
    "slots without an adapter": ("--model.adapter full --rollout.adapter_slots 8", ["rollout.adapter_slots = 8", "cannot matter"]),
    "factor rule for whole weights": ("--model.adapter full --aggregation.rule product", ['aggregation.rule = "product"', "use full"]),
    "whole-weight rule for an adapter": ("--aggregation.rule full", ['aggregation.rule = "full"', "product, factors, frozen_a or merge"]),
    "ZeRO 3 with an adapter": ("--learner.zero_stage 3", ["learner.zero_stage = 3", "0, 1, 2"]),
    "too few adapter slots": ("--rollout.adapter_slots 4", ["rollout.adapter_slots = 4", "needs 5", "5 or more"]),
    "no target": ("--model.lora.targets []", ["model.lora.targets", "all-linear"]),
    "KL estimator without KL": ("--algorithm.kl_coef 0 --algorithm.kl_estimator k1", ['algorithm.kl_estimator = "k1"', "kl_coef = 0"]),
    "KL anchor without KL": ("--algorithm.kl_coef 0 --algorithm.kl_anchor base", ['algorithm.kl_anchor = "base"', "kl_coef = 0"]),
    "unknown algorithm": ("--algorithm.name pppo", ['algorithm.name = "pppo"', "grpo | ppo", "did you mean 'ppo'"]),
    "a group of one": ("--algorithm.group_size 1", ["algorithm.group_size = 1", "grpo compares", "2 to 1024"]),
    "lambda without a critic": ("--algorithm.lam 0.9", ["algorithm.lam = 0.9", "cannot matter with algorithm.name = grpo"]),
    "KL in the reward without tokens' rewards": ("--algorithm.kl_in reward", ['algorithm.kl_in = "reward"', "grpo"]),
    "critic without PPO": ("--critic.lr 1e-4", ["critic.lr = 0.0001", "cannot matter", "grpo"]),
    "groups without GRPO": ("--algorithm.name ppo --algorithm.norm_unit turn", ['algorithm.norm_unit = "turn"', "ppo"]),
    "flat groups without GRPO": ("--algorithm.name ppo --algorithm.drop_zero_variance", ["drop_zero_variance = true", "ppo"]),
    "floor without whitening": ("--algorithm.name ppo --algorithm.whiten false --algorithm.std_floor 1", ["std_floor = 1", "whiten"]),
    "unbiased gradient of a number": (
        "--algorithm.name ppo --algorithm.kl_in reward --algorithm.kl_estimator k3_unbiased",
        ['kl_estimator = "k3_unbiased"', "as a loss alone", "k1, k2, k3"],
    ),
    "place of no KL": ("--algorithm.name ppo --algorithm.kl_coef 0 --algorithm.kl_in reward", ["kl_in", "kl_coef = 0"]),
    "critics of one": ("--algorithm.name ppo --federation.mode local --critic.federate false", ["critic.federate = false", "local"]),
    "mean of moments of critics that stay at home": (
        "--algorithm.name ppo --critic.federate false --learner.optimizer_state average",
        ["critic.federate = false", "optimizer_state = average"],
    ),
    "warm-up without end": (
        "--algorithm.name ppo --federation.rounds 3 --critic.warmup_rounds 3",
        ["critic.warmup_rounds = 3", "federation.rounds = 3", "0 to 2"],
    ),
    "PPO's batch larger than a client's tasks": (
        "--algorithm.name ppo --federation.tasks_per_client 50",
        ["algorithm.tasks_per_epoch = 64", "owns 50", "federation.tasks_per_client"],
    ),
    "floor of nothing": ("--algorithm.normalize_std false --algorithm.std_floor 1", ["algorithm.std_floor = 1", "normalize_std"]),
    "fewer rows than workers": ("--learner.workers 4 --learner.mini_batch 3", ["learner.mini_batch = 3", "4 or more"]),
    "products beside data": ("--world.data /d --world.products 100", ["world.products = 100", "cannot matter"]),
    "data seed beside data": ("--world.data /d --world.data_seed 1", ["world.data_seed = 1", "cannot matter"]),
    "WebShop's profile elsewhere": ("--world.name alfworld --world.profile up", ['world.profile = "up"', "alfworld"]),
    "WebShop's pages elsewhere": ("--world.name guess --world.results_per_page 4", ["world.results_per_page = 4", "guess"]),
    "more evaluation tasks than held out": ("--world.heldout 50 --evaluation.tasks 51", ["evaluation.tasks = 51", "1 to 50"]),
    "more than the skipped leave": ("--world.heldout 50 --evaluation.skip 20 --evaluation.tasks 31", ["skip = 20", "1 to 30"]),
    "all skipped": ("--world.heldout 50 --evaluation.skip 50", ["evaluation.skip = 50", "0 to 49"]),
    "tasks of clients that nobody measures": ("--evaluation.client_tasks 9", ["client_tasks = 9", "without evaluation.clients"]),
    "tolerance without the test": ("--rollout.self_test false --rollout.self_test_tolerance 0.1", ["self_test_tolerance", "cannot matter"]),
    "cache on a GPU": ("--resources.engine_gpus 1 --rollout.kv_cache_gb 2", ["rollout.kv_cache_gb = 2", "cannot matter"]),
    "GPU memory on a CPU": ("--rollout.gpu_memory_utilization 0.5", ["rollout.gpu_memory_utilization = 0.5", "engine_gpus = 0"]),
    "tensor parallel on a CPU": ("--rollout.tensor_parallel 2", ["rollout.tensor_parallel = 2", "engine_gpus = 0"]),
    "too few GPUs": ("--resources.engine_gpus 1 --rollout.tensor_parallel 2", ["rollout.tensor_parallel = 2", "engine_gpus = 1"]),
    "vLLM's cache with transformers": ("--rollout.backend transformers --rollout.kv_cache_gb 2", ["rollout.kv_cache_gb", "transformers"]),
    "no room for a prompt": ("--rollout.max_context 64 --rollout.max_new_tokens 64", ["rollout.max_context = 64", "max_new_tokens = 64"]),
    "address without MLflow": ("--tracking.mlflow false --tracking.uri x", ['tracking.uri = "x"', "cannot matter"]),
    "experiment without MLflow": ("--tracking.mlflow false --tracking.experiment x", ["tracking.experiment", "cannot matter"]),
    "client runs without MLflow": ("--tracking.mlflow false --tracking.clients false", ["tracking.clients = false", "cannot matter"]),
    "CPUs of a foreign cluster": ("--resources.address auto --resources.cpus 4", ["resources.cpus = 4", "cannot matter"]),
    "object store of a foreign cluster": ("--resources.address auto --resources.object_store_gb 4", ["object_store_gb", "cannot matter"]),
}

ACCEPTED = [
    "",
    "--federation.clients 4 --federation.clients_per_round 4",
    "--federation.mode local --federation.local_client 7",
    "--federation.mode centralized --federation.schedule reference",
    "--model.adapter full --aggregation.rule full --learner.zero_stage 3",
    "--aggregation.rule merge",
    "--rollout.adapter_slots 5",
    "--federation.clients_per_round 8 --rollout.adapter_slots 5",
    "--algorithm.kl_coef 0",
    "--algorithm.normalize_std false",
    "--algorithm.name ppo",
    "--algorithm.name ppo --algorithm.group_size 8 --algorithm.tasks_per_epoch 8 --algorithm.gae_unit turn --critic.value_scale 1",
    "--algorithm.name ppo --critic.federate false --learner.optimizer_state keep --algorithm.kl_in reward --algorithm.kl_estimator k1",
    "--algorithm.name ppo --federation.mode centralized --critic.value_clip null --algorithm.target_kl 0.05",
    "--algorithm.kl_estimator k3_unbiased --algorithm.passes 4 --algorithm.target_kl 0.1",
    "--learner.workers 4 --learner.mini_batch 4",
    "--world.data /d --world.results_per_page 4",
    "--world.name guess --world.max_steps 6 --world.data_seed 3",
    "--world.heldout 50 --evaluation.tasks 50",
    "--world.heldout 50 --evaluation.skip 20 --evaluation.tasks 30",
    "--evaluation.clients true --evaluation.client_tasks 9",
    "--rollout.self_test false",
    "--resources.engine_gpus 2 --rollout.tensor_parallel 2 --rollout.gpu_memory_utilization 0.5",
    "--rollout.kv_cache_gb 2",
    "--rollout.backend transformers --rollout.max_num_seqs 16",
    "--tracking.mlflow false",
    "--resources.address auto",
    "--federation.mode centralized --federation.clients 8 --federation.tasks_per_client 1",
]


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    words, expected = REFUSED[case]
    with pytest.raises(ConfigError) as error:
        load_config(None, words.split())
    for part in expected:
        assert part in str(error.value)


@pytest.mark.parametrize("words", ACCEPTED)
def test_accepted(words: str) -> None:
    load_config(None, words.split())


def test_algorithms_have_defaults_of_their_own() -> None:
    ppo = load_config(None, ["--algorithm.name=ppo"])
    assert (ppo.algorithm.tasks_per_epoch, ppo.algorithm.group_size) == (64, 1)
    assert (Config().algorithm.tasks_per_epoch, Config().algorithm.group_size) == (8, 8)
    assert load_config(None, ["--algorithm.name=ppo", "--algorithm.tasks_per_epoch=8"]).algorithm.tasks_per_epoch == 8
    rates = [resolve(load_config(None, words.split())).critic.lr for words in ("", "--model.adapter full", "--model.name m")]
    assert rates == [5e-3, 1e-3, 1e-4]
    assert resolve(load_config(None, ["--algorithm.name=ppo", "--critic.lr=0.5"])).critic.lr == 0.5


def test_defaults_are_silent() -> None:
    assert problems(Config()) == []


def test_a_rule_speaks_of_a_default_only_when_it_was_set() -> None:
    assert problems(Config.model_validate({"model": {"adapter": "full"}})) == []
    set_explicitly = Config.model_validate({"model": {"adapter": "full", "lora": {"rank": 8}}})
    assert [problem.path for problem in problems(set_explicitly)] == ["model.lora.rank"]
