"""The latency table: how long a model takes at every operating point.

It is the one thing that the rooms above need from this one. A table never changes once made; what
is learned online lives in a corrector beside it (``corrector.py``).
"""

import re
import reprlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from estimators.errors import TableError
from estimators.lines import Lines
from estimators.tablefile import read_members, reading, write_members

FORMAT_VERSION = "1.0"
"""Version of the file format, ``major.minor``. History: 1.0 first."""

Phase = Literal["inference", "decode", "prefill"]
Int63 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

_VERSION = re.compile(r"([0-9]{1,9})\.[0-9]{1,9}")
_MAX_DEPTH = 32
_AXES = ("emc_hz", "context", "cpu_hz", "gpu_hz")
_UNITS = {"emc_hz": "Hz", "context": "tokens", "cpu_hz": "Hz", "gpu_hz": "Hz", "latency_us": "us"}
_MEMBERS = frozenset({"header", *_AXES, "latency_us", "power_mw", "tail_ratio", "tail_levels"})
_REQUIRED = ("header", *_AXES, "latency_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHeader:
    """What a table was made of and where.

    Attributes:
        format_version: Version of the file format, ``major.minor``.
        board: Name of the board; empty if unknown.
        soc: System on chip; empty if unknown.
        l4t: JetPack / L4T release; empty if unknown.
        power_mode: Power mode of the board (nvpmodel); empty if unknown.
        online_cpus: CPUs that were online; empty if unknown.
        gpu_tpc_mask: GPU power-gating mask in force (``tpc_pg_mask``); None if unknown.
        engine: Inference engine.
        precision: Numeric precision of the model.
        model: Name of the model; the daemon finds tables by model and phase.
        period_ns: Period the jobs ran at while profiled, ns; 0 for back to back.
        phase: Part of the work that one job is.
        units: Unit of each array.
        provenance: Where the figures come from: files, dates, tool versions.
        fit: Report of the estimator that made the table; empty for pure measurements.
    """

    format_version: str = FORMAT_VERSION
    board: str = ""
    soc: str = ""
    l4t: str = ""
    power_mode: str = ""
    online_cpus: tuple[Int63, ...] = ()
    gpu_tpc_mask: Int63 | None = None
    engine: str = ""
    precision: str = ""
    model: str = ""
    period_ns: Int63 = 0
    phase: Phase = "inference"
    units: dict[str, str] = field(default_factory=lambda: dict(_UNITS))
    provenance: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LatencyTable:
    """Latency, and if known power, at every operating point.

    Axes are ascending. ``[0]`` alone on a clock axis means that this clock is governed by the
    board: every clock asked for on it is then exact.

    Attributes:
        header: What the table was made of.
        emc_hz: Memory clocks, Hz, int64 ``[E]``.
        context: Context lengths, tokens, int64 ``[K]``; ``[0]`` for models without one.
        cpu_hz: CPU clocks, Hz, int64 ``[C]``.
        gpu_hz: GPU clocks, Hz, int64 ``[G]``.
        latency_us: Latency, us, float32 ``[E, K, C, G]``.
        power_mw: Power while a job runs, mW, float32 of the same shape, or None.
        tail_ratio: Quantiles of latency over the table's value, float32 ``[E, Q]``, or None.
        tail_levels: Levels of those quantiles, 0..1, float64 ``[Q]``, or None.

    Raises:
        TableError: An array has the wrong shape, order, sign or a value that is not finite.
    """

    header: TableHeader
    emc_hz: NDArray[np.int64]
    context: NDArray[np.int64]
    cpu_hz: NDArray[np.int64]
    gpu_hz: NDArray[np.int64]
    latency_us: NDArray[np.float32]
    power_mw: NDArray[np.float32] | None = None
    tail_ratio: NDArray[np.float32] | None = None
    tail_levels: NDArray[np.float64] | None = None
    source: str = field(default="", kw_only=True)
    """File the table was read from, for messages; empty if made in memory."""

    def __post_init__(self) -> None:
        """Bring the arrays to their types, check them, and make them read-only."""
        for name in _AXES:
            self._set(name, _axis(self.source, name, getattr(self, name)))
        shape = tuple(len(getattr(self, name)) for name in _AXES)
        self._set("latency_us", _positive(self.source, "latency_us", self.latency_us, shape))
        if self.power_mw is not None:
            self._set("power_mw", _positive(self.source, "power_mw", self.power_mw, shape))
        if (self.tail_ratio is None) != (self.tail_levels is None):
            raise _bad(self.source, "tail_ratio", "tail_ratio and tail_levels come together")
        if self.tail_levels is not None and self.tail_ratio is not None:
            levels = _levels(self.source, self.tail_levels)
            tail_shape = (shape[0], len(levels))
            self._set("tail_levels", levels)
            self._set(
                "tail_ratio", _positive(self.source, "tail_ratio", self.tail_ratio, tail_shape)
            )

    def _set(self, name: str, array: NDArray[Any]) -> None:
        array.flags.writeable = False
        object.__setattr__(self, name, array)

    # ---- file ------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | Path) -> "LatencyTable":
        """Read a table.

        Raises:
            TableError: The file cannot be read or is not a sound table of a known version.
        """
        path = Path(path)
        arrays = read_members(path, _MEMBERS)
        for name in _REQUIRED:
            if name not in arrays:
                raise _bad(str(path), name, "missing from the file")
        text = arrays.pop("header")
        if text.dtype.kind != "U" or text.ndim != 0:
            raise _bad(str(path), "header", "must be one text of JSON")
        with reading(path):
            return cls(decode_header(str(path), str(text)), source=str(path), **arrays)

    def save(self, path: str | Path) -> None:
        """Write the table as ``.npz``, replacing what was there in one step.

        Raises:
            TableError: The file cannot be written.
        """
        header = msgspec.json.encode(replace(self.header, format_version=FORMAT_VERSION))
        arrays: dict[str, NDArray[Any]] = {"header": np.array(header.decode())}
        for name in sorted(_MEMBERS - {"header"}):
            array = getattr(self, name)
            if array is not None:
                arrays[name] = array
        write_members(Path(path), arrays)

    # ---- lookup ----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Lengths of the axes ``[E, K, C, G]``."""
        e, k, c, g = self.latency_us.shape
        return e, k, c, g

    @cached_property
    def _lists(self) -> dict[str, list[int]]:
        return {name: getattr(self, name).tolist() for name in _AXES}

    def emc_index(self, emc_hz: int) -> tuple[int, bool]:
        """Find the memory clock to plan with.

        Args:
            emc_hz: Memory clock in force, Hz; 0 when unknown.

        Returns:
            Index on the EMC axis, and whether it is that very clock. A clock that the table lacks
            gets its slower neighbour, or the lowest point if there is none; an unknown one gets
            the lowest point.
        """
        axis = self._lists["emc_hz"]
        if axis == [0]:
            return 0, True
        index = bisect_right(axis, emc_hz) - 1
        if index < 0:
            return 0, False
        return index, axis[index] == emc_hz

    def context_weight(self, context: int) -> tuple[int, int, float, bool]:
        """Find the context lengths to interpolate between.

        Returns:
            ``(lo, hi, weight, clamped)``: the value is ``a[lo] + (a[hi] - a[lo]) * weight``.
            Outside the axis the nearest end is taken and ``clamped`` is True. An axis ``[0]``
            (no context) is never clamped.
        """
        axis = self._lists["context"]
        hi = bisect_left(axis, context)
        if hi == len(axis):
            return hi - 1, hi - 1, 0.0, axis != [0]
        if axis[hi] == context or hi == 0:
            return hi, hi, 0.0, axis[hi] != context
        lo = hi - 1
        return lo, hi, (context - axis[lo]) / (axis[hi] - axis[lo]), False

    def cpu_index(self, cpu_hz: int) -> int:
        """Find a CPU clock, Hz; see :meth:`latency_at` for what it raises."""
        return self._clock_index("cpu_hz", cpu_hz)

    def gpu_index(self, gpu_hz: int) -> int:
        """Find a GPU clock, Hz; see :meth:`latency_at` for what it raises."""
        return self._clock_index("gpu_hz", gpu_hz)

    def _clock_index(self, name: str, clock_hz: int) -> int:
        axis = self._lists[name]
        if clock_hz == 0 or axis == [0]:
            return 0
        index = bisect_left(axis, clock_hz)
        if index == len(axis) or axis[index] != clock_hz:
            raise _bad(self.source, name, f"the table has no {clock_hz} Hz")
        return index

    def latency_at(self, cpu_hz: int, gpu_hz: int, *, emc_hz: int = 0, context: int = 0) -> float:
        """Look up the latency at one operating point, us.

        Clocks must be on the axes, but 0 (a domain that the board lacks) reads the lowest; see
        :meth:`emc_index` and :meth:`context_weight` for what happens between the others.

        Raises:
            TableError: The table has no such CPU or GPU clock.
        """
        c, g = self.cpu_index(cpu_hz), self.gpu_index(gpu_hz)
        emc, _ = self.emc_index(emc_hz)
        lo, hi, weight, _ = self.context_weight(context)
        low = float(self.latency_us[emc, lo, c, g])
        return low + (float(self.latency_us[emc, hi, c, g]) - low) * weight

    def slice_us(self, emc_hz: int = 0, context: int = 0) -> NDArray[np.float64]:
        """Latency at every operating point for one memory clock and context, us ``[C, G]``."""
        return self._slice(self.latency_us, emc_hz, context)

    def slice_mw(self, emc_hz: int = 0, context: int = 0) -> NDArray[np.float64] | None:
        """Power at every operating point, mW ``[C, G]``; None if the table has no power."""
        return None if self.power_mw is None else self._slice(self.power_mw, emc_hz, context)

    def _slice(self, array: NDArray[np.float32], emc_hz: int, context: int) -> NDArray[np.float64]:
        emc, _ = self.emc_index(emc_hz)
        lo, hi, weight, _ = self.context_weight(context)
        low: NDArray[np.float64] = array[emc, lo].astype(np.float64)
        if lo != hi:
            low += (array[emc, hi] - low) * weight
        return low

    @cached_property
    def cpu_lines(self) -> Lines:
        """Lines along the CPU axis, row ``(emc * K + context) * G + gpu``; made on first use."""
        return Lines(self.latency_us.swapaxes(2, 3).reshape(-1, len(self.cpu_hz)))

    def gpu_lines(self, cpu: int) -> Lines:
        """Make lines along the GPU axis at one CPU index, row ``emc * K + context``."""
        return Lines(self.latency_us[:, :, cpu].reshape(-1, len(self.gpu_hz)))

    # ---- fitness for a board ---------------------------------------------------------------

    def check_board(
        self,
        online_cpus: Sequence[int],
        gpu_tpc_mask: int | None,
        board: str = "",
        *,
        force: bool = False,
    ) -> tuple[str, ...]:
        """Refuse a table made on another board or with other cores or TPCs online.

        What either side does not know (empty or None) is not compared.

        Returns:
            The differences found; not empty only if forced.

        Raises:
            TableError: There is a difference and ``force`` is False.
        """
        header = self.header
        pairs = (
            ("board", header.board, board),
            ("online CPUs", _spans(header.online_cpus), _spans(online_cpus)),
            ("GPU TPC mask", _hex(header.gpu_tpc_mask), _hex(gpu_tpc_mask)),
        )
        found = tuple(
            f"{what} {made!r} in the table, {here!r} here"
            for what, made, here in pairs
            if made and here and made != here
        )
        if found and not force:
            raise TableError(
                "table made on another configuration",
                where=self.source or f"table of {header.model or 'unnamed model'}",
                why=", ".join(found),
                hint="profile the model on this board, or force its use",
            )
        return found


def _bad(source: str, array: str, why: str) -> TableError:
    where = f"{source}: {array}" if source else array
    return TableError(
        "unusable table", where=where, why=why, hint="flamegov table check tells more"
    )


def _axis(source: str, name: str, values: Any) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise _bad(source, name, f"must be a row of numbers, not shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise _bad(source, name, f"must be integers, not {array.dtype}")
    axis: NDArray[np.int64] = array.astype(np.int64)
    if axis[0] < 0:
        raise _bad(source, name, f"negative value {axis[0]}")
    if np.any(np.diff(axis) <= 0):
        at = int(np.argmax(np.diff(axis) <= 0)) + 1
        raise _bad(source, name, f"must ascend, but entry {at} is {axis[at]} after {axis[at - 1]}")
    if name != "context" and axis[0] == 0 and len(axis) > 1:
        raise _bad(source, name, "0 (governed by the board) must stand alone")
    return axis


def _positive(source: str, name: str, values: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.shape != shape:
        raise _bad(source, name, f"shape {array.shape} does not fit the axes {shape}")
    if array.dtype.kind not in "fiu":
        raise _bad(source, name, f"must be numbers, not {array.dtype}")
    with np.errstate(over="ignore", under="ignore"):  # found by the check that follows
        result = array.astype(np.float32, order="C")
    wrong = ~(np.isfinite(result) & (result > 0))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        count = int(np.count_nonzero(wrong))
        raise _bad(
            source,
            name,
            f"{array[at]} at {list(at)} is not a positive finite number ({count} such)",
        )
    return result


def _levels(source: str, values: Any) -> NDArray[np.float64]:
    levels = np.asarray(values)
    if levels.ndim != 1 or levels.size == 0 or levels.dtype.kind != "f":
        raise _bad(source, "tail_levels", "must be a row of floating-point numbers")
    result = levels.astype(np.float64)
    if not (np.all((result > 0) & (result < 1)) and np.all(np.diff(result) > 0)):
        raise _bad(source, "tail_levels", "must ascend between 0 and 1")
    return result


def decode_header(source: str, text: str | bytes) -> TableHeader:
    """Read a header from JSON; ``source`` is for messages.

    Raises:
        TableError: It is not JSON, a field has the wrong type, or the format is a newer one.
    """
    try:
        raw = msgspec.json.decode(text, type=dict[str, Any])
        _check_version(source, raw.get("format_version"))
        _check_depth(source, raw)
        return msgspec.convert(raw, TableHeader)
    # Deep nesting is a RecursionError, an integer of 5000 digits a ValueError.
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise _bad(source, "header", str(exc)) from exc


def _check_depth(source: str, value: object, left: int = _MAX_DEPTH) -> None:
    """Refuse what could be read but, a few calls deeper in the stack, not written again."""
    if left == 0:
        raise _bad(source, "header", f"nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            _check_depth(source, part, left - 1)


def _check_version(source: str, version: object) -> None:
    found = _VERSION.fullmatch(str(version))
    if found is None:
        shown = reprlib.repr(version)
        raise _bad(source, "header", f"no format version like {FORMAT_VERSION}: {shown}")
    known = FORMAT_VERSION.partition(".")[0]
    if int(found[1]) > int(known):
        raise TableError(
            "table of a newer format",
            where=f"{source}: header",
            why=f"it has version {version}, this flamegov reads {known}.x",
            hint="update flamegov, or export the table to CSV where it was made",
        )


def _spans(cpus: Sequence[int]) -> str:
    return ",".join(str(cpu) for cpu in sorted(set(cpus)))


def _hex(mask: int | None) -> str:
    return "" if mask is None else hex(mask)
