"""Names of tables: torch keeps a module's parts as its attributes, so that not every feature's name will do."""

from torch import nn

_TAKEN = nn.ModuleDict()
"""Its own attributes, such as `type` and `keys`, name no part."""


def table_name(feature: str) -> str:
    """The name of a feature's table in models and checkpoints: its own, percent-encoded where it cannot be that.

    Different features have different names.
    """
    name = feature.replace("%", "%25").replace(".", "%2E")
    return f"%{ord(name[0]):02X}{name[1:]}" if hasattr(_TAKEN, name) else name
