"""Durations as people write them: ``"20ms"``, ``"1.5 s"``, ``"120us"``; inside, integers of ns.

Imports the standard library only: the client is one of its readers.
"""

import re
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache

Duration = str | int | timedelta
"""A duration: text with a unit, an integer of ns, or a ``timedelta``."""

_NS_PER_UNIT = {
    "ns": 1,
    "us": 1_000,
    "\N{MICRO SIGN}s": 1_000,
    "\N{GREEK SMALL LETTER MU}s": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})\s*([^\W\d_]+)\s*")


def parse_ns(value: Duration) -> int:
    """Turn a duration into ns, rounded half to even.

    Args:
        value: ``"20ms"`` and the like (units ns, us, ms, s, min, h), an integer of ns, or a
            ``timedelta``. A bare float is refused: its unit would be a guess.

    Raises:
        ValueError: The text is not a duration, or its unit is unknown.
        TypeError: The value is of another type.
    """
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000_000 + value.microseconds * 1_000
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"a duration is text such as '20ms', an integer of ns or a timedelta; got {value!r}"
        )
    return _parse_text(value)


@lru_cache(maxsize=64)
def _parse_text(value: str) -> int:
    # Cached: an application writes its few deadlines with every job.
    match = _DURATION.fullmatch(value)
    scale = _NS_PER_UNIT.get(match[2]) if match else None
    if match is None or scale is None:
        raise ValueError(
            f"not a duration: {value!r}; write a number and one of ns, us, ms, s, min, h"
        )
    return round(Decimal(match[1]) * scale)


def format_ns(duration_ns: int) -> str:
    """Write a duration in the largest unit that leaves at least 1 before the point.

    The result has at most four significant digits and reads back through :func:`parse_ns`.
    """
    unit = next((u for u in ("s", "ms", "us") if abs(duration_ns) >= _NS_PER_UNIT[u]), "ns")
    return f"{duration_ns / _NS_PER_UNIT[unit]:.4g} {unit}"
