"""Native operators for tables on the CPU: lookup and update. setup.py builds them when the package is installed."""

from sharding.native.load import find_build_error, find_load_error, load_library
