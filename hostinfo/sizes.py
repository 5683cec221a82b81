"""Formatting of sizes in bytes, in binary units (GiB) or decimal units (GB)."""

UNITS = {1024: ("bytes", "KiB", "MiB", "GiB", "TiB"), 1000: ("bytes", "kB", "MB", "GB", "TB")}


def guess_size_base(num_bytes: int) -> int:
    """Guess the base of the unit in which a size was written: 1000 for "80GB", 1024 for "8GiB"."""
    return 1000 if num_bytes % 2**20 and num_bytes % 10**6 == 0 else 1024


def format_size(num_bytes: float, base: int = 1024) -> str:
    """Format a size in the largest fitting unit. base: 1024 for binary units, 1000 for decimal units."""
    unit, units = 0, UNITS[base]
    while num_bytes >= base and unit < len(units) - 1:
        num_bytes /= base
        unit += 1
    return f"{num_bytes:,.0f} {units[unit]}" if unit == 0 else f"{num_bytes:,.1f} {units[unit]}"


def format_giga(num_bytes: float, base: int) -> str:
    """Format a size in GiB (base 1024) or GB (base 1000), whatever its magnitude, so that sizes are easy to compare."""
    return f"{num_bytes / base**3:,.2f} {UNITS[base][3]}"


def format_giga_limit(num_bytes: int, base: int) -> str:
    """Format the largest size that does not exceed `num_bytes` as a quoted value for a job document, in GiB or GB.

    It is rounded down to hundredths of the unit.
    """
    hundredths = 100 * num_bytes // base**3
    return f'"{hundredths // 100}.{hundredths % 100:02d}{UNITS[base][3]}"'
