"""Counts what a device is asked to do. "meta" stands in for one: its tensors have shapes, and no numbers."""

from itertools import pairwise
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ON_DEVICE = torch.device("meta")


class DeviceCalls(TorchDispatchMode):
    """Counts operators that compute on the device; views, and work on the host, are none."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        name = func._schema.name
        is_on_device = any(tensor.device == ON_DEVICE for tensor in tensors)
        if is_on_device and not func.is_view and not name.startswith("aten::empty"):
            self.names.append(name)
            if "_foreach_" in name:
                _check_that_all_share_a_launch(name, args)
        return func(*args, **kwargs)


def _check_that_all_share_a_launch(name: str, args: Any) -> None:
    """Check what CUDA's foreach kernels ask for: otherwise they make one launch for each tensor."""
    lists = [arg for arg in args if isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], torch.Tensor)]
    for one, other in pairwise(lists):
        for first, second in zip(one, other, strict=True):
            assert first.device == second.device, name
            assert first.shape == second.shape, name
            assert first.stride() == second.stride(), name
            assert first.dtype == second.dtype or name == "aten::_foreach_copy_", name
