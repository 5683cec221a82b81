"""Own operators of tables on the CPU: lookup and update. Built when the package is installed, by setup.py."""

from sharding.native.load import load_library, why_not, why_not_built

__all__ = ["load_library", "why_not", "why_not_built"]
