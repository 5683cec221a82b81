"""What three configurations lose, step by step, and the program that writes it down: see CONTRIBUTING.md.

`python -m tests.distributed.golden` trains them and overwrites `golden_losses.json`.
"""

import json
from dataclasses import replace
from pathlib import Path

from dlrm.config import ModelConfig, MomentsConfig, VarianceReductionConfig
from tests.distributed.rank_pool import RankPools
from tests.distributed.reference import MODEL, TABLE_ROWS, GlobalBatch, random_batches, with_lists_and_weights
from tests.distributed.training import Setting, Trained, train

FILE = Path(__file__).with_name("golden_losses.json")
NUM_STEPS, GLOBAL_SIZE = 100, 256
ROWS = list(TABLE_ROWS.values())

PLAIN = Setting(
    GLOBAL_SIZE,
    64,
    "rowwise_adagrad",
    dense_optimizer="adam",
    dense_rate=0.002,
    table_rate=0.02,
    moments=MomentsConfig(every=1),
)
CONFIGURATIONS = {
    "DLRM by Adam and row-wise Adagrad": PLAIN,
    "DLRM by variance-reduced SGD, exact moments on a share, lists and weights": replace(
        PLAIN,
        dense_optimizer="sgd",
        dense_rate=0.05,
        mean_weight=1.8,
        variance_reduction=VarianceReductionConfig(),
    ),
    "DCN-v2 by variance-reduced LAMB, moments of groups, mean pooling, tables by SGD": replace(
        PLAIN,
        model=ModelConfig(
            **MODEL.model_dump(exclude={"architecture", "pooling", "cross_layers", "cross_rank"}),
            architecture="dcn_v2",
            pooling="mean",
            cross_layers=2,
            cross_rank=8,
        ),
        dense_optimizer="lamb",
        dense_rate=0.01,
        table_optimizer="sgd",
        table_rate=0.3,
        mean_weight=1.8,
        moments=MomentsConfig(estimator="groups"),
        variance_reduction=VarianceReductionConfig(scale="update"),
    ),
}


def batches_of(setting: Setting) -> list[GlobalBatch]:
    """Learnable ones, the last of them short; with lists and weights where the setting has a mean weight."""
    batches = random_batches(NUM_STEPS, GLOBAL_SIZE, ROWS, seed=4, num_empty_in_last=100)
    return batches if setting.mean_weight == 1.0 else with_lists_and_weights(batches, ROWS)


def losses_of(rank_pools: RankPools, setting: Setting, world_size: int) -> list[float]:
    trained: list[Trained] = rank_pools.of(world_size).run(train, setting, batches_of(setting))
    return trained[0].losses


def main() -> None:
    rank_pools = RankPools()
    losses = {name: losses_of(rank_pools, setting, 1) for name, setting in CONFIGURATIONS.items()}
    rank_pools.close()
    FILE.write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    main()
