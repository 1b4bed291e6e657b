"""Messages between the live board and those who use it: JSON, one message a packet."""

from typing import Any, TypeVar

import msgspec

from bench.plant.errors import PlantError

MAX_BYTES = 1 << 16
"""Largest message, bytes."""


class Run(msgspec.Struct, tag="run"):
    """Run one job; answered by :class:`Ran` when its simulated end has come."""

    workload: str
    engine: str = "flame-eager"
    precision: str = ""
    batch: int = 1
    context: int = 0


class AskEnergy(msgspec.Struct, tag="energy"):
    """Ask for the true energy; answered by :class:`Energy`."""


class AskState(msgspec.Struct, tag="state"):
    """Ask what is in force; answered by :class:`State`."""


class Cap(msgspec.Struct, tag="cap"):
    """Limit clocks as another requester than the user, Hz; 0 lifts a limit."""

    cpu_hz: int = 0
    gpu_hz: int = 0


class Write(msgspec.Struct, tag="write"):
    """Write a file as another program would; a refusal is answered by :class:`Refused`."""

    path: str
    text: str


class SetMode(msgspec.Struct, tag="mode"):
    """Do what ``nvpmodel -m`` does."""

    name: str


class Break(msgspec.Struct, tag="break"):
    """Make hardware fail: an errno for each clock request, a throttle behind the kernel's back.

    ``domain`` is ``"cpu"`` or ``"gpu"``; zero means healthy.
    """

    domain: str
    driver_errno: int = 0
    hardware_cap_hz: int = 0


class Heat(msgspec.Struct, tag="heat"):
    """Set the chip's temperature, degrees Celsius."""

    chip_c: float


class Stop(msgspec.Struct, tag="stop"):
    """End the process."""


Request = Run | AskEnergy | AskState | Cap | Write | SetMode | Break | Heat | Stop


class Ran(msgspec.Struct, tag="ran"):
    """What came of a job; times are simulated, clocks are ``[cpu, gpu, emc]`` in Hz."""

    start_ns: int
    end_ns: int
    latency_us: float
    start: tuple[int, int, int]
    end: tuple[int, int, int]
    switched: bool


class Energy(msgspec.Struct, tag="energy"):
    """True energy, mJ, per rail and for the module, since the start and since the last question.

    The last question is counted per connection.
    """

    now_ns: int
    rails_mj: dict[str, float]
    total_mj: float
    since_ns: int
    since_rails_mj: dict[str, float]
    since_total_mj: float


class State(msgspec.Struct, tag="state"):
    """What is in force; clocks in Hz, true power in mW, temperatures in millidegrees."""

    now_ns: int
    cpu_hz: int
    gpu_hz: int
    emc_hz: int
    policies_hz: dict[str, int]
    cpu_governor: str
    gpu_governor: str
    rails_mw: dict[str, float]
    total_mw: float
    temp_mc: dict[str, int]
    jobs: int


class Ok(msgspec.Struct, tag="ok"):
    """It was done."""


class Refused(msgspec.Struct, tag="refused"):
    """It was not done; ``errno`` is 0 when no kernel was involved."""

    why: str
    errno: int = 0


Reply = Ran | Energy | State | Ok | Refused

_T = TypeVar("_T")
_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Request)
_replies: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    """Write a message down."""
    return _encoder.encode(message)


def decode_request(packet: bytes) -> Request:
    """Read a request.

    Raises:
        PlantError: It is none.
    """
    return _decode(_requests, packet, "request")  # type: ignore[no-any-return]  # checked by msgspec


def decode_reply(packet: bytes) -> Reply:
    """Read a reply.

    Raises:
        PlantError: It is none.
    """
    return _decode(_replies, packet, "reply")  # type: ignore[no-any-return]  # checked by msgspec


def _decode(decoder: "msgspec.json.Decoder[_T]", packet: bytes, what: str) -> _T:
    try:
        return decoder.decode(packet)
    except msgspec.DecodeError as error:
        raise PlantError(f"not a {what}", why=str(error)) from error
