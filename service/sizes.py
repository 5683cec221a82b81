"""Bytes as people write them."""

UNITS = {1024: ("bytes", "KiB", "MiB", "GiB", "TiB"), 1000: ("bytes", "kB", "MB", "GB", "TB")}


def base_of_size(num_bytes: int) -> int:
    """That a size was written in: 1000 of "80GB", 1024 of "8GiB"."""
    return 1000 if num_bytes % 2**20 and num_bytes % 10**6 == 0 else 1024


def size_in_bytes(num_bytes: float, base: int = 1024) -> str:
    """base: 1024, or 1000 for decimal units."""
    unit, units = 0, UNITS[base]
    while num_bytes >= base and unit < len(units) - 1:
        num_bytes /= base
        unit += 1
    return f"{num_bytes:,.0f} {units[unit]}" if unit == 0 else f"{num_bytes:,.1f} {units[unit]}"


def in_giga(num_bytes: float, base: int) -> str:
    """In GiB, or in GB: for sizes that are held against each other."""
    return f"{num_bytes / base**3:,.2f} {UNITS[base][3]}"


def at_most_in_giga(num_bytes: int, base: int) -> str:
    """The largest size that is not above `num_bytes`, as a document may say it."""
    hundredths = 100 * num_bytes // base**3
    return f'"{hundredths // 100}.{hundredths % 100:02d}{UNITS[base][3]}"'
