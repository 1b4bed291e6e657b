"""Golden byte vectors of the wire protocol; ``python -m tests.governor.vectors`` writes them
into ``vectors.json`` and into the protocol's document.

Each vector's fields stand in the order of the wire. They are a contract with clients in other
languages: a change to an existing one is a change of the protocol's version.
"""

import json
import textwrap
from pathlib import Path
from typing import Any

import msgpack

PATH = Path(__file__).with_name("vectors.json")
DOCUMENT = Path(__file__).parents[2] / "governor" / "PROTOCOL.md"

REQUESTS: dict[str, dict[str, Any]] = {
    "open": {
        "v": 1,
        "op": "open",
        "id": 1,
        "session": 1,
        "model": "resnet50",
        "deadline_ns": 20_000_000,
    },
    "open-full": {
        "v": 1,
        "op": "open",
        "id": 2,
        "session": 4_294_967_295,
        "model": "qwen2-1.5b",
        "phase": "decode",
        "deadline_ns": 3_600_000_000_000,
        "period_ns": 130_000_000,
        "context": 1_048_576,
        "miss_budget": 0.03125,
        "name": "caméra",
    },
    "begin": {"v": 1, "op": "begin", "session": 1, "job": 1, "start_ns": 123_456_789_012},
    "begin-relative": {
        "v": 1,
        "op": "begin",
        "session": 1,
        "job": 2,
        "start_ns": 123_476_789_012,
        "deadline_ns": 15_000_000,
        "context": 300,
    },
    "begin-absolute-ack": {
        "v": 1,
        "op": "begin",
        "id": 7,
        "session": 1,
        "job": 18_446_744_073_709_551_615,
        "start_ns": 123_496_789_012,
        "deadline_at_ns": 123_516_789_012,
        "ack": True,
    },
    "end": {
        "v": 1,
        "op": "end",
        "session": 1,
        "job": 1,
        "start_ns": 123_456_789_012,
        "end_ns": 123_470_000_000,
    },
    "end-aborted": {
        "v": 1,
        "op": "end",
        "session": 1,
        "job": 2,
        "start_ns": 123_476_789_012,
        "end_ns": 123_476_789_012,
        "aborted": True,
    },
    "update": {
        "v": 1,
        "op": "update",
        "id": 8,
        "session": 1,
        "deadline_ns": 12_000_000,
        "ack": True,
    },
    "query": {
        "v": 1,
        "op": "query",
        "id": 9,
        "model": "resnet50",
        "deadline_ns": 12_000_000,
    },
    "ping": {"v": 1, "op": "ping", "id": 10},
    "status": {"v": 1, "op": "status", "id": 11, "detail": True},
    "close": {"v": 1, "op": "close", "session": 1},
}

ADMIN: dict[str, dict[str, Any]] = {
    "policy-set": {
        "v": 1,
        "op": "policy",
        "id": 1,
        "action": "set",
        "name": "flame",
        "options": {"corrector": "raw", "margin": 0.125, "window": 8, "on": True},
    },
    "policy-list": {"v": 1, "op": "policy", "id": 2, "action": "list"},
    "reload": {"v": 1, "op": "reload", "id": 3},
    "pause": {"v": 1, "op": "pause", "id": 4},
    "resume": {"v": 1, "op": "resume", "id": 5},
    "trace": {"v": 1, "op": "trace", "id": 6},
}

ANSWERS: dict[str, dict[str, Any]] = {
    "reply": {
        "v": 1,
        "op": "reply",
        "id": 7,
        "session": 1,
        "body": {"cpu_hz": 1_190_400_000, "gpu_hz": 612_000_000, "feasible": True},
    },
    "reply-empty": {"v": 1, "op": "reply", "id": 10, "body": {}},
    "error-reopen": {
        "v": 1,
        "op": "error",
        "id": 0,
        "code": "reopen",
        "field": "$.session",
        "reason": "no such session",
        "session": 1,
        "job": 3,
    },
    "error-bad-field": {
        "v": 1,
        "op": "error",
        "id": 1,
        "code": "bad-field",
        "field": "$.deadline_ns",
        "reason": "Expected `int` >= 1",
        "session": 1,
    },
}


def vectors() -> list[dict[str, Any]]:
    """Return every vector: its name, direction, bytes in hex and fields."""
    groups = {"hints": REQUESTS, "admin": ADMIN, "answer": ANSWERS}
    return [
        {"name": name, "socket": group, "hex": msgpack.packb(fields).hex(), "fields": fields}
        for group, messages in groups.items()
        for name, fields in messages.items()
    ]


def section() -> str:
    """Return the vectors as the section of the protocol's document."""
    lines = ["", ""]
    for vector in vectors():
        fields = json.dumps(vector["fields"], ensure_ascii=False)
        digits = vector["hex"]
        rows = [digits[at : at + 96] for at in range(0, len(digits), 96)]
        head = f"**{vector['name']}** ({vector['socket']}): `{fields}`"
        wrapped = textwrap.wrap(head, 110, break_long_words=False, break_on_hyphens=False)
        lines += [*wrapped, "", "```", *rows, "```", ""]
    return "\n".join(lines)


def split_document() -> tuple[str, str, str]:
    """Return the protocol's document: before, within and after the section of vectors."""
    before, start, rest = DOCUMENT.read_text(encoding="utf-8").partition("vectors -->")
    within, end, after = rest.partition("<!-- end -->")
    return before + start, within, end + after


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    head, _, tail = split_document()
    DOCUMENT.write_text(head + section() + tail, encoding="utf-8")
