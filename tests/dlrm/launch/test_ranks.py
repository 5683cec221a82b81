"""The settings of torch's elastic launch, whichever version of torch is installed."""

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from torch.distributed.launcher import api

from dlrm.launch import ranks


@dataclass
class OlderLaunchConfig:
    """Settings that torch 2.11 knows."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    max_restarts: int
    logs_specs: Any
    signals_to_handle: str
    run_id: str
    rdzv_backend: str
    rdzv_endpoint: str
    local_addr: str


@dataclass
class NewerLaunchConfig(OlderLaunchConfig):
    """Settings that torch 2.13 knows."""

    shutdown_timeout: int


@pytest.mark.parametrize(
    ("settings", "timeouts"), [(OlderLaunchConfig, {}), (NewerLaunchConfig, {"shutdown_timeout": 300})]
)
def test_ranks_get_their_time_to_end_where_torch_can_be_told_of_it(
    settings: type[OlderLaunchConfig], timeouts: dict[str, int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with mock.patch.object(api, "LaunchConfig", settings):
        config = ranks._make_config(3, None)
    assert config.nproc_per_node == 3
    assert {name: value for name, value in vars(config).items() if "timeout" in name} == timeouts
