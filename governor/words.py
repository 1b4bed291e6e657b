"""Words for people: near misses and numbers with units."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Phrase the nearest known word as a question; empty if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else ""


def printable(text: str) -> str:
    """Escape what would steer a terminal or forge a line: control characters, ESC, newlines."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def one_line(text: str, most: int) -> str:
    """Make one printable line of at most ``most`` characters, cut at its end."""
    line = printable(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most else line[: most - 3] + "..."


def mhz(hz: int) -> str:
    """Write a clock in MHz."""
    return f"{hz / 1e6:.0f} MHz" if hz else "-"
