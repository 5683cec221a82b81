"""The input dist of transports that send no ids."""

from dataclasses import dataclass

import torch

from sharding.jagged import JaggedIds


@dataclass(frozen=True)
class ReadyIds:
    """Ids that are already where they are looked up."""

    ids: JaggedIds[torch.Tensor]

    def wait(self) -> None:
        """Return at once."""
