"""Units: parsing what people write, and writing what people read.

Sizes are bytes, times are seconds in job files and integer nanoseconds inside.
"""

import re
from typing import Literal

Unit = Literal["ns", "s", "bytes", "steps", "cores", "ratio"]

NS_PER_S = 1_000_000_000
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

# Both "G" and "GB" are read as GiB: that is what torch, nvidia-smi and cgroups count in.
_BYTES = {"": 1, "B": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_SIZE = re.compile(_NUMBER + r"\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_DURATION_PART = re.compile(_NUMBER + r"\s*(min|[smhd]?)")


def parse_bytes(text: str) -> int:
    """Bytes of a size as people write it: ``512M``, ``2GB``, ``1.5 GiB`` or a plain number.

    Decimal and binary spellings both mean powers of 1024.

    Raises:
        ValueError: The text is not a positive size.

    >>> parse_bytes("1.5G"), parse_bytes("2GB"), parse_bytes("100")
    (1610612736, 2147483648, 100)
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _BYTES[match[2].upper()]) if match else 0
    if not 0 < size < 2**60:
        raise ValueError(
            f'"{text}" is not a size; write a number with K, M, G or T, as in 700M or 2G'
        )
    return size


def parse_seconds(text: str) -> float:
    """Seconds of a duration as people write it: ``90``, ``90s``, ``5m``, ``1h30m``, ``2d``.

    Raises:
        ValueError: The text is not a positive duration.

    >>> parse_seconds("1h30m"), parse_seconds("90")
    (5400.0, 90.0)
    """
    text = text.strip()
    parts = list(_DURATION_PART.finditer(text))
    total = sum(float(part[1]) * _SECONDS[part[2]] for part in parts)
    if "".join(part[0] for part in parts) != text or not 0 < total < 1e10:
        raise ValueError(
            f'"{text}" is not a duration; write seconds or use s, m, h, d, as in 1h30m'
        )
    return total


def show_bytes(size: float | None) -> str:
    """A size for people: ``612 MiB``, ``2.3 GiB``, ``-`` where unknown.

    >>> show_bytes(641728512), show_bytes(2469606195), show_bytes(None)
    ('612 MiB', '2.3 GiB', '-')
    """
    if size is None:
        return "-"
    if size >= GIB:
        return f"{size / GIB:.1f} GiB"
    if size >= MIB:
        return f"{size / MIB:.0f} MiB"
    return f"{size / KIB:.0f} KiB"


def show_seconds(seconds: float | None) -> str:
    """A duration for people: ``0:31``, ``4:02``, ``1:02:03``, ``0.9 s`` below ten seconds.

    >>> show_seconds(31), show_seconds(3723), show_seconds(0.94), show_seconds(None)
    ('0:31', '1:02:03', '0.9 s', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_step(step_ns: float | None) -> str:
    """A step's time for people, in the unit that reads best.

    >>> show_step(34_100_000), show_step(870_000), show_step(2.5e9), show_step(None)
    ('34.1 ms', '0.87 ms', '2.5 s', '-')
    """
    if step_ns is None:
        return "-"
    if step_ns >= NS_PER_S:
        return f"{step_ns / NS_PER_S:.1f} s"
    milliseconds = step_ns / 1e6
    return f"{milliseconds:.1f} ms" if milliseconds >= 1 else f"{milliseconds:.2f} ms"
