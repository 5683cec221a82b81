"""The golden losses of three configurations, and the program that writes them: see CONTRIBUTING.md.

`python -m tests.distributed.golden` trains them and overwrites `golden_losses.json`.
"""

import json
from dataclasses import replace
from pathlib import Path

from dlrm.config import ModelConfig, MomentsConfig, VarianceReductionConfig
from tests.distributed.reference import MODEL, TABLE_ROWS, GlobalBatch, add_lists_and_weights, draw_batches
from tests.distributed.training import TrainedModel, TrainingSetting, train
from tests.rank_pool.pool import RankPools

FILE = Path(__file__).with_name("golden_losses.json")
NUM_STEPS, GLOBAL_SIZE = 100, 256
ROWS = list(TABLE_ROWS.values())

PLAIN = TrainingSetting(
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


def draw_golden_batches(setting: TrainingSetting) -> list[GlobalBatch]:
    """Draw learnable batches, the last of them short; with lists and weights where the setting has a mean weight."""
    batches = draw_batches(NUM_STEPS, GLOBAL_SIZE, ROWS, seed=4, num_empty_in_last=100)
    return batches if setting.mean_weight == 1.0 else add_lists_and_weights(batches, ROWS)


def train_to_losses(rank_pools: RankPools, setting: TrainingSetting, world_size: int) -> list[float]:
    trained: list[TrainedModel] = rank_pools.of(world_size).run(train, setting, draw_golden_batches(setting))
    return trained[0].losses


def main() -> None:
    rank_pools = RankPools("dlrm.train.build")
    losses = {name: train_to_losses(rank_pools, setting, 1) for name, setting in CONFIGURATIONS.items()}
    rank_pools.close()
    FILE.write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    main()
