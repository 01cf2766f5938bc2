"""Numbers on pages: how many digits, where there is little room, and moments. See also `rgcn.system.formatting`."""

import math
from collections.abc import Mapping
from datetime import datetime

SPLIT_WORDS = {"train": "training", "valid": "validation", "test": "test"}


def decimal(value: float) -> str:
    """Three figures that matter.

    >>> decimal(0.38249), decimal(12.345), decimal(40943.0), decimal(0.00012345)
    ('0.382', '12.3', '40,943', '0.000123')
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}" if places <= 6 else f"{value:.2e}"


def percent(value: float) -> str:
    """
    >>> percent(0.88235)
    '88.2 %'
    """
    return f"{100 * value:.1f} %"


def compact(value: float) -> str:
    """For axes, where there is little room.

    >>> compact(0.25), compact(1500), compact(20000), compact(2_000_000), compact(0)
    ('0.25', '1.5k', '20k', '2M', '0')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def split_sizes(sizes: Mapping[str, int]) -> str:
    """
    >>> split_sizes({"train": 4000, "valid": 0, "test": 12})
    'training 4,000, test 12'
    """
    return ", ".join(f"{SPLIT_WORDS[split]} {size:,}" for split, size in sizes.items() if size) or "none"


def moment(written: object) -> str:
    """A time as a run writes it, without fractions of a second; anything else as it is.

    >>> moment("2026-11-20T09:30:12.123456+00:00")
    '2026-11-20 09:30:12 UTC'
    """
    try:
        when = datetime.fromisoformat(str(written).replace("Z", "+00:00"))
    except ValueError:
        return str(written)
    zone = "" if when.tzinfo is None else " UTC" if not when.utcoffset() else f" UTC{when:%z}"
    return f"{when:%Y-%m-%d %H:%M:%S}{zone}"
