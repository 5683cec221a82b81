"""What would give tables room, in the words of a job's document: the one place here that knows them.

Written as TOML has it, `resources.memory = "3.11GiB"`; what stands in parentheses explains.
"""

from collections.abc import Iterator
from string import ascii_letters

from sharding.plan.request import PlanRequest
from sharding.plan.topology import Device

UNITS: dict[Device, tuple[tuple[str, int], ...]] = {
    "cpu": (("GiB", 2**30), ("MiB", 2**20)),
    "cuda": (("GB", 10**9), ("MB", 10**6)),
}
"""Memory of machines, and of GPUs, as each is sold."""
LARGE = 10
"""Of a unit, from which on one decimal is enough; fewer have two."""


def in_words(request: PlanRequest, tried: PlanRequest) -> str:
    """The settings that make `tried` of `request`."""
    return ", ".join(_settings(request, tried))


def _settings(request: PlanRequest, tried: PlanRequest) -> Iterator[str]:
    topology, other = request.topology, tried.topology
    if other.memory_bytes != topology.memory_bytes:
        is_cuda = topology.device == "cuda"
        field, what = ("sharding.topology.gpu_memory", "a GPU") if is_cuda else ("resources.memory", "a node")
        yield f'{field} = "{in_units(other.memory_bytes, topology.device)}" (of memory {what})'
    if other.num_nodes != topology.num_nodes:
        yield f"resources.nodes = {other.num_nodes} ({other.world_size} ranks)"
    if tried.optimizer != request.optimizer:
        yield f'table_optimizer.name = "{tried.optimizer}" (which keeps less)'
    if tried.plan != request.plan:
        yield f'sharding.plan = "{tried.plan}"'
    if tried.rules != request.rules:
        yield "sharding.tables = [] (no rules)"
    if tried.exchange_dtype != request.exchange_dtype:
        yield f'sharding.exchange_dtype = "{tried.exchange_dtype}"'
    if tried.global_size != request.global_size:
        yield f"batch.global_size = {tried.global_size}"
    if tried.chunk_size != request.chunk_size:
        yield f"batch.chunk_size = {tried.chunk_size} (or less)"


def in_units(num_bytes: int, device: Device) -> str:
    """Rounded up, such as "3.11GiB": a size as a job's document takes it."""
    return _written(num_bytes, device, is_up=True)[0]


def in_units_at_most(num_bytes: int, device: Device) -> str:
    """As it was written, or rounded down."""
    if as_written(num_bytes, device) == num_bytes:
        return in_units(num_bytes, device)
    return _written(num_bytes, device, is_up=False)[0]


def as_written(num_bytes: int, device: Device) -> int:
    """The bytes that `in_units` writes, exactly as a document that says so is read: about `num_bytes` or more."""
    text, unit = _written(num_bytes, device, is_up=True)
    return int(float(text.rstrip(ascii_letters)) * unit)


def _written(num_bytes: int, device: Device, *, is_up: bool) -> tuple[str, int]:
    """The text, and the bytes of its unit."""
    units = UNITS[device]
    name, size = next((unit for unit in units if num_bytes >= unit[1]), units[-1])
    grain = 10 if num_bytes >= LARGE * size else 1
    count, rest = divmod(num_bytes * 100, size * grain)
    hundredths = (count + (is_up and rest > 0)) * grain
    digits = f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")
    return f"{digits}{name}", size
