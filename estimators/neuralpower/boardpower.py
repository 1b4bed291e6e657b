"""Power of a board against its clocks: what it draws idle, and what work adds.

For any load, with V the supply voltage relative to the top clock's::

    P = base + V_c + f_c V_c^2 + V_g + f_g V_g^2          idle: leakage and clock trees
      + f_c V_c^2 (one + C/T)                             a host that spins, or works C of T
      + f_g V_g^2 G/T                                     a GPU that is busy G of T
      + (V_g^2 a + b) / T                                 work of one job: switching, memory

Each term has a coefficient that is not negative, so power rises with either clock as long as T
falls. Voltages are not readable on most boards: a curve of three numbers per domain is found with
the coefficients. One fit per memory clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from estimators.errors import ProfileError
from estimators.profiles import Samples
from estimators.residual import Array

STEP_MW = 400.0
"""Resolution of the power sensor of AGX boards, mW (INA3221: 40 uV over the rail's shunt)."""

MIN_IDLE = 4
"""Idle rows below which the idle model is refused: both ends of both clocks."""

LEAST_MW, MOST_MW = 100.0, 2_000_000.0
"""Plausible power of a board, mW."""

# Priors of a voltage curve: least voltage, share of the clock range with it, bend above.
_CURVE_MEAN, _CURVE_SPREAD = np.array([0.62, 0.25, 1.7]), np.array([0.12, 0.15, 0.5])
_CURVE_LOW, _CURVE_HIGH = np.array([0.3, 0.0, 1.0]), np.array([0.98, 0.8, 4.0])
_BALANCE_SPREAD = 1.0  # of the log of CPU to GPU time at top clocks, where latency is unknown
_SHARPNESS = 4.0  # of the bend between CPU- and GPU-bound, where latency is unknown
_NOISE = 0.01  # relative, of a power reading besides the sensor's resolution
_IDLE_TERMS = 5


@dataclass(frozen=True, slots=True)
class Voltage:
    """Supply voltage of a domain relative to that at the top clock.

    Attributes:
        top_hz: Top clock, Hz.
        least: Voltage at the lowest clocks, 0..1.
        knee: Share of the top clock up to which it stays there.
        bend: Exponent of the rise above.
    """

    top_hz: float
    least: float
    knee: float
    bend: float

    def __call__(self, clock_hz: Array) -> Array:
        """Voltage at each clock."""
        above = np.maximum(clock_hz / self.top_hz - self.knee, 0.0) / (1.0 - self.knee)
        volts: Array = self.least + (1.0 - self.least) * above**self.bend
        return volts


@dataclass(frozen=True, slots=True)
class Load:
    """Measurements of one load that runs over and over at fixed clocks.

    Attributes:
        cpu_hz: CPU clock, Hz, ``[n]``.
        gpu_hz: GPU clock, Hz, ``[n]``.
        power_mw: Mean power while it runs, mW, ``[n]``.
        total_us: From one job to the next, us, ``[n]``; None if unknown.
        cpu_us: Host time of a job, ``[n]``; 0 if unknown.
        gpu_us: GPU busy time of a job, ``[n]``; 0 if unknown.
    """

    cpu_hz: Array
    gpu_hz: Array
    power_mw: Array
    total_us: Array | None = None
    cpu_us: Array | float = 0.0
    gpu_us: Array | float = 0.0

    @classmethod
    def of(cls, where: str, samples: Samples) -> "Load":
        """Take a load from columns ``power_mw`` and, if they are there, times.

        Raises:
            ProfileError: No power column, or implausible values.
        """
        if "power_mw" not in samples.values:
            raise ProfileError(
                "no power was measured", where=where, hint="the column is called power_mw"
            )
        values = samples.values
        total = values.get("total_us", values.get("latency_us"))
        return cls(
            samples.cpu_hz.astype(np.float64),
            samples.gpu_hz.astype(np.float64),
            check_power(where, values["power_mw"]),
            total,
            values.get("cpu_us", 0.0),
            values.get("gpu_us", 0.0),
        )


def check_power(where: str, power_mw: Array) -> Array:
    """Refuse power that is no number or must be in another unit.

    Raises:
        ProfileError: Names the row.
    """
    values = np.asarray(power_mw, dtype=np.float64)
    wrong = ~((values >= LEAST_MW) & (values <= MOST_MW))  # also true for nan
    if wrong.any():
        row = int(np.argmax(wrong))
        value = float(values[row])
        hint = "it looks like W: multiply by 1000" if 0 < value < LEAST_MW else "give it in mW"
        raise ProfileError(
            "implausible power",
            where=f"{where}, row {row}, column power_mw",
            why=f"{value:g} mW is outside {LEAST_MW:g}..{MOST_MW:g} ({int(wrong.sum())} such rows)",
            hint=hint,
        )
    return values


@dataclass(frozen=True, slots=True)
class BoardPower:
    """A fitted board at one memory clock.

    Attributes:
        cpu: Voltage of the CPU.
        gpu: Voltage of the GPU.
        coefficients: Of the terms that do not depend on the load, mW, ``[8]``.
        work: ``(a, b)`` of each load that was fitted along, ``[loads, 2]``, mW us.
        balance: CPU over GPU time at top clocks; used where latency is unknown.
        fit: Report: rows, RMSPE in sample, share of rows below the sensor's resolution.
    """

    cpu: Voltage
    gpu: Voltage
    coefficients: Array
    work: Array
    balance: float = 1.0
    fit: dict[str, float] = field(default_factory=dict)

    def idle_mw(self, cpu_hz: Array, gpu_hz: Array) -> Array:
        """Power without work, mW; clocks broadcast."""
        terms = _idle_terms(self.cpu, self.gpu, cpu_hz, gpu_hz)
        idle: Array = np.tensordot(terms, self.coefficients[:_IDLE_TERMS], axes=1)
        return idle

    def power_mw(
        self,
        cpu_hz: Array,
        gpu_hz: Array,
        total_us: Array,
        work: Array,
        *,
        cpu_us: Array | float = 0.0,
        gpu_us: Array | float = 0.0,
    ) -> Array:
        """Power of a load, mW; everything broadcasts.

        Args:
            cpu_hz: CPU clock, Hz.
            gpu_hz: GPU clock, Hz.
            total_us: From one job to the next, us.
            work: ``(a, b)`` of the load, ``[2]``.
            cpu_us: Host time of a job, us.
            gpu_us: GPU busy time of a job, us.
        """
        terms = self._terms(cpu_hz, gpu_hz, total_us, cpu_us, gpu_us)
        power: Array = terms @ np.concatenate([self.coefficients, work])
        return power

    def work_of(self, load: Load) -> Array:
        """Fit ``(a, b)`` of another load, ``[2]``, mW us.

        Raises:
            ProfileError: Its latency is unknown.
        """
        from scipy.optimize import nnls

        if load.total_us is None:
            raise ProfileError("the work of a load needs its latency", hint="measure total_us")
        terms = self._terms(load.cpu_hz, load.gpu_hz, load.total_us, load.cpu_us, load.gpu_us)
        rest = load.power_mw - terms[:, :-2] @ self.coefficients
        weight = 1.0 / _deviation(load.power_mw)
        scale = terms[:, -2:].max(0)
        found, _ = nnls(terms[:, -2:] / scale * weight[:, None], rest * weight)
        result: Array = found / scale
        return result

    def _terms(
        self,
        cpu_hz: Array,
        gpu_hz: Array,
        total_us: Array,
        cpu_us: Array | float,
        gpu_us: Array | float,
    ) -> Array:
        return np.concatenate(
            [
                _idle_terms(self.cpu, self.gpu, cpu_hz, gpu_hz),
                _load_terms(self.cpu, self.gpu, cpu_hz, gpu_hz, (total_us, cpu_us, gpu_us)),
            ],
            axis=-1,
        )


def _stack(*terms: Array) -> Array:
    return np.stack(np.broadcast_arrays(*terms), axis=-1)


def _idle_terms(cpu: Voltage, gpu: Voltage, cpu_hz: Array, gpu_hz: Array) -> Array:
    volt_c, volt_g = cpu(cpu_hz), gpu(gpu_hz)
    swing_c, swing_g = cpu_hz / cpu.top_hz * volt_c**2, gpu_hz / gpu.top_hz * volt_g**2
    return _stack(np.ones(()), volt_c, swing_c, volt_g, swing_g)


def _load_terms(
    cpu: Voltage,
    gpu: Voltage,
    cpu_hz: Array,
    gpu_hz: Array,
    times_us: tuple[Array, Array | float, Array | float],
) -> Array:
    total_us, cpu_us, gpu_us = times_us
    volt_g = gpu(gpu_hz)
    swing_c = cpu_hz / cpu.top_hz * cpu(cpu_hz) ** 2
    swing_g = gpu_hz / gpu.top_hz * volt_g**2
    return _stack(
        swing_c,
        swing_c * (cpu_us / total_us),
        swing_g * (gpu_us / total_us),
        volt_g**2 / total_us,
        1.0 / total_us,
    )


def _deviation(power_mw: Array) -> Array:
    """Standard deviation of a reading: what varies, and half a sensor step evenly spread."""
    deviation: Array = np.sqrt((_NOISE * power_mw) ** 2 + STEP_MW**2 / 12)
    return deviation


@dataclass(frozen=True, slots=True)
class _Problem:
    """Rows of idle and of all loads, for given voltage curves linear in what is unknown."""

    idle: Load | None
    loads: Sequence[Load]
    top_hz: tuple[float, float]

    @property
    def measured_mw(self) -> Array:
        parts = [] if self.idle is None else [self.idle.power_mw]
        return np.concatenate([*parts, *(load.power_mw for load in self.loads)])

    @property
    def latency_unknown(self) -> bool:
        return any(load.total_us is None for load in self.loads)

    def curves(self, theta: Array) -> tuple[Voltage, Voltage]:
        cpu, gpu = theta[:3].tolist(), theta[3:6].tolist()
        return Voltage(self.top_hz[0], *cpu), Voltage(self.top_hz[1], *gpu)

    def matrix(self, theta: Array) -> Array:
        """Terms of all rows: those of the board, then two columns for each load."""
        curves, shared, blocks = self.curves(theta), _IDLE_TERMS + 3, []
        width = shared + 2 * len(self.loads)
        if self.idle is not None:
            block = np.zeros((len(self.idle.power_mw), width))
            block[:, :_IDLE_TERMS] = _idle_terms(*curves, self.idle.cpu_hz, self.idle.gpu_hz)
            blocks.append(block)
        for number, load in enumerate(self.loads):
            total = load.total_us
            if total is None:
                total = guessed_us(load.cpu_hz, load.gpu_hz, self.top_hz, float(np.exp(theta[6])))
            times = (total, load.cpu_us, load.gpu_us)
            block = np.zeros((len(load.power_mw), width))
            terms = _load_terms(*curves, load.cpu_hz, load.gpu_hz, times)
            block[:, :_IDLE_TERMS] = _idle_terms(*curves, load.cpu_hz, load.gpu_hz)
            block[:, _IDLE_TERMS:shared] = terms[:, :3]
            block[:, shared + 2 * number : shared + 2 * number + 2] = terms[:, 3:]
            blocks.append(block)
        return np.concatenate(blocks)

    def solve(self, theta: Array) -> tuple[Array, Array]:
        """Best coefficients for the curves, and what they leave over in deviations."""
        from scipy.optimize import nnls

        measured, terms = self.measured_mw, self.matrix(theta)
        weight = 1.0 / _deviation(measured)
        scale = np.maximum(terms.max(0), 1e-30)
        rows, goal = terms / scale * weight[:, None], measured * weight
        found, _ = nnls(rows, goal)
        return found / scale, rows @ found - goal


def guessed_us(cpu_hz: Array, gpu_hz: Array, top_hz: tuple[float, float], balance: float) -> Array:
    """Latency up to a factor, where none was measured: CPU and GPU overlap, ``balance`` apart."""
    cpu, gpu = balance * top_hz[0] / cpu_hz, top_hz[1] / gpu_hz
    total: Array = (cpu**_SHARPNESS + gpu**_SHARPNESS) ** (1 / _SHARPNESS)
    return total


def fit_board(
    idle: Load | None, loads: Sequence[Load], *, top_hz: tuple[float, float]
) -> BoardPower:
    """Fit a board at one memory clock.

    Args:
        idle: Idle rows; None if none were measured (idle power is then not told from a load's).
        loads: What was run, a few of different kinds: layers, or a whole network.
        top_hz: Top CPU and GPU clock of the board, Hz.

    Raises:
        ProfileError: Too few rows.
    """
    from scipy.optimize import least_squares

    problem = _Problem(idle, loads, top_hz)
    _check_rows(problem)
    mean = np.concatenate([_CURVE_MEAN, _CURVE_MEAN, [0.0]])
    spread = np.concatenate([_CURVE_SPREAD, _CURVE_SPREAD, [_BALANCE_SPREAD]])
    low = np.concatenate([_CURVE_LOW, _CURVE_LOW, [-5.0]])
    high = np.concatenate([_CURVE_HIGH, _CURVE_HIGH, [5.0]])
    free = 7 if problem.latency_unknown else 6

    def residual(part: Array) -> Array:
        theta = np.concatenate([part, mean[free:]])
        result: Array = np.concatenate(
            [problem.solve(theta)[1], (part - mean[:free]) / spread[:free]]
        )
        return result

    found = least_squares(
        residual,
        mean[:free],
        bounds=(low[:free], high[:free]),
        x_scale=spread[:free],
        diff_step=[1e-3] * free,
        max_nfev=40,
    )
    theta = np.concatenate([found.x, mean[free:]])
    solution, _ = problem.solve(theta)
    cpu, gpu = problem.curves(theta)
    predicted, measured = problem.matrix(theta) @ solution, problem.measured_mw
    report = {
        "rows": float(len(measured)),
        "rmspe_in_sample_pct": float(100 * np.sqrt(np.mean((predicted / measured - 1) ** 2))),
    }
    shared = _IDLE_TERMS + 3
    work = solution[shared:].reshape(-1, 2)
    return BoardPower(cpu, gpu, solution[:shared], work, float(np.exp(theta[6])), report)


def _check_rows(problem: _Problem) -> None:
    if problem.idle is not None and len(problem.idle.power_mw) < MIN_IDLE:
        raise ProfileError(
            "too few idle rows",
            why=f"{len(problem.idle.power_mw)} given, {MIN_IDLE} needed",
            hint="measure idle power at both ends of both clocks at least",
        )
    if not problem.loads:
        raise ProfileError("no load to learn from", hint="measure the power of a few layers")
