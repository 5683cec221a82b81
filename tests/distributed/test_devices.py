"""A rank trains the same on a GPU as on a CPU."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from benchmarks.training import Shape, run_on_ranks
from dlrm.optimizers import StepRates
from dlrm.train.batch import DeviceBatch
from sharding.comm.process_groups import Ranks
from sharding.jagged import JaggedIds
from sharding.planner.types import Device

pytestmark = [pytest.mark.slow, pytest.mark.gpu]

CASES = ["dlrm:off:adam", "dlrm:default:adam", "dlrm:exact:lamb", "dlrm:groups:sgd", "dcn_v2:off:lars"]
RATES = StepRates(dense=0.003, table=0.02)
"""High enough that a few steps change the loss."""
Losses = dict[str, list[float]]


def train(kind: Device, transport: str, directory: Path) -> Losses:
    """Train a few steps of every case in a process of its own, and return the losses."""
    path = directory / f"{kind}-{transport}.pt"
    run_on_ranks(1, kind, train_all, transport, path)
    return torch.load(path)


def train_all(ranks: Ranks, transport: str, path: Path) -> None:
    losses: Losses = {}
    for case in CASES:
        architecture, reduction, optimizer = case.split(":")
        shape = Shape(
            256,
            1,
            3,
            50,
            8,
            architecture,
            "fp32",
            "fp32",
            "zipf",
            reduction,
            transport,
            chunk_size=96,
            optimizer=optimizer,
        )
        step = replace(shape, device="cpu" if ranks.device.type == "cpu" else "cuda").build_parts(ranks).step
        losses[case] = [step(batch, RATES).loss for batch in islice(draw_batches(shape, ranks.device), 6)]
    torch.save(losses, path)


def draw_batches(shape: Shape, device: torch.device) -> Iterator[DeviceBatch]:
    """Draw the same batches for every device."""
    torch.manual_seed(0)
    for batch in shape.draw_batches():
        ids = JaggedIds(batch.ids.values.to(device), batch.ids.lengths.to(device))
        dense, labels, mask = (tensor.to(device) for tensor in (batch.dense, batch.labels, batch.mask))
        yield replace(batch, dense=dense, ids=ids, labels=labels, mask=mask, weights=mask)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Losses:
    return train("cpu", "memory", tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def trained(cuda_device: str, tmp_path_factory: pytest.TempPathFactory) -> Losses:
    return train("cuda", "torchrec", tmp_path_factory.mktemp("cuda"))


@pytest.mark.parametrize("case", CASES)
def test_a_gpu_makes_the_same_steps(case: str, trained: Losses, reference: Losses):
    assert trained[case] == pytest.approx(reference[case], abs=1e-4)
    assert max(reference[case]) - min(reference[case]) > 0.005
