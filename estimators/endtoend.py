"""Latency of a whole model from a few end-to-end runs: for engines that show no layers.

TensorRT and llama.cpp run a model as one piece, so nothing but its total time is seen. The CPU, the
GPU and memory each need a time that falls with their own clock; how far the three overlap is
unknown, from not at all (times add up) to completely (the longest counts). The estimator therefore
carries a family of smooth hinges, from sum to maximum, and weighs the members by how well they
explain the runs; what they leave over is interpolated. No latency may be taken for monotone: the
residual can say otherwise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from estimators.errors import ProfileError
from estimators.residual import SCALES, Array, Kernel, Scale, softmax

MIN_RUNS = 5
"""Runs that a fit needs: fewer than the three terms and the offset have parameters."""

EXPONENTS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 40.0)
"""Sharpness of the hinge: 1 adds the terms up, 40 is the maximum to within 2 %."""

_DOMAINS = ("cpu_hz", "gpu_hz", "emc_hz")
_EMC = 2
# Priors in natural log, relative to the fastest run: a term that overlaps is about half of it, an
# offset a tenth, a serial rest a few percent; each may be off by a factor of 4.5 (or 20 at two
# deviations).
_TERM, _OFFSET, _SERIAL, _SPREAD = np.log(0.5), np.log(0.1), np.log(0.03), 1.5
_EMC_SPREAD = 0.3  # a memory level may depart by this from time proportional to 1/f_emc
_KEEP = 1e-3  # members of the family below this weight do not change the estimate


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which parameter drives which term; every term is ``exp(rows @ theta + offset)``.

    Attributes:
        active: Columns of X that vary.
        top_hz: Highest clock of each column, the unit of its term.
        levels: Log of the EMC clocks measured, ascending; empty if EMC does not vary.
        mean: Prior mean of the parameters, ``[P]``.
        spread: Prior deviation of the parameters, ``[P]``.
    """

    active: tuple[int, ...]
    top_hz: Array
    levels: Array
    mean: Array
    spread: Array

    @classmethod
    def of(cls, x_hz: Array) -> "_Layout":
        active = tuple(j for j in range(x_hz.shape[1]) if np.unique(x_hz[:, j]).size > 1)
        levels = np.unique(np.log(x_hz[:, _EMC])) if _EMC in active else np.zeros(0)
        serial = [j for j in active if j != _EMC]
        mean = [_TERM] * len(active) + [_OFFSET] + [_SERIAL] * len(serial) + [0.0] * len(levels)
        spread = [_SPREAD] * (len(mean) - len(levels)) + [_EMC_SPREAD] * len(levels)
        return cls(active, x_hz.max(0), levels, np.array(mean), np.array(spread))

    def terms(self, x_hz: Array) -> tuple[Array, Array, int]:
        """Make rows ``[T, n, P]``, offsets ``[T, n]`` and how many of the T terms overlap."""
        n, count = len(x_hz), len(self.mean)
        inverse = np.log(self.top_hz / x_hz)
        serial = [j for j in self.active if j != _EMC]
        used = len(self.active)
        rows = np.zeros((used + 1 + len(serial), n, count))
        offsets = np.zeros(rows.shape[:2])
        for t, j in enumerate(self.active):
            rows[t, :, t], offsets[t] = 1.0, inverse[:, j]
            if j == _EMC:
                rows[t, :, count - len(self.levels) :] = self._level_weights(np.log(x_hz[:, j]))
        for t in range(used, len(rows)):
            rows[t, :, t] = 1.0
            if t > used:
                offsets[t] = inverse[:, serial[t - used - 1]]
        return rows, offsets, used

    def _level_weights(self, log_hz: Array) -> Array:
        """Linear weights over the measured EMC levels, ``[n, levels]``; clamped outside."""
        unit = np.eye(len(self.levels))
        return np.stack([np.interp(log_hz, self.levels, row) for row in unit], axis=1)


def _log_time(
    theta: Array, exponent: Array, terms: tuple[Array, Array, int]
) -> tuple[Array, Array]:
    """Evaluate B members of the family.

    Args:
        theta: Parameters, ``[B, P]``.
        exponent: Sharpness of each, ``[B]``.
        terms: From :meth:`_Layout.terms`.

    Returns:
        Log of time ``[B, n]`` and its gradient ``[B, n, P]``.
    """
    rows, offsets, used = terms
    log_terms = np.einsum("tnp,bp->btn", rows, theta) + offsets
    p = exponent[:, None, None]
    over = log_terms[:, :used]
    peak = over.max(1, keepdims=True)
    powered = np.exp(p * (over - peak))
    total = powered.sum(1, keepdims=True)
    log_hinge = peak + np.log(total) / p
    pieces = np.concatenate([log_hinge, log_terms[:, used:]], axis=1)
    top = pieces.max(1, keepdims=True)
    shares = np.exp(pieces - top)
    whole = shares.sum(1, keepdims=True)
    shares /= whole
    weights = np.concatenate([shares[:, :1] * powered / total, shares[:, 1:]], axis=1)
    gradient = np.einsum("btn,tnp->bnp", weights, rows)
    return (top + np.log(whole))[:, 0], gradient


@dataclass(frozen=True, slots=True)
class _Problem:
    """Penalised least squares for B members at once.

    Attributes:
        terms: From :meth:`_Layout.terms`.
        target: Log of measured over fastest time, ``[n]``.
        exponent: Sharpness per member, ``[B]``.
        whiten: Inverse Cholesky factor of the residual's covariance per member, ``[B, n, n]``.
        layout: Priors.
    """

    terms: tuple[Array, Array, int]
    target: Array
    exponent: Array
    whiten: Array
    layout: _Layout

    def residual(self, theta: Array) -> tuple[Array, Array]:
        """Residuals ``[B, n + P]`` and their Jacobian ``[B, n + P, P]``."""
        log_time, gradient = _log_time(theta, self.exponent, self.terms)
        layout, batch = self.layout, len(theta)
        data = np.einsum("bij,bj->bi", self.whiten, log_time - self.target)
        slope = self.whiten @ gradient
        prior = (theta - layout.mean) / layout.spread
        penalty = np.broadcast_to(
            np.diag(1 / layout.spread), (batch, *np.diag(layout.spread).shape)
        )
        return np.concatenate([data, prior], 1), np.concatenate([slope, penalty], 1)

    def solve(self, theta: Array, rounds: int = 60) -> tuple[Array, Array, Array]:
        """Levenberg-Marquardt on all members; returns theta, cost ``[B]`` and Hessian."""
        damping = np.full(len(theta), 1e-2)
        residual, jacobian = self.residual(theta)
        cost = 0.5 * (residual**2).sum(1)
        for _ in range(rounds):
            hessian = np.einsum("bri,brj->bij", jacobian, jacobian)
            slope = np.einsum("bri,br->bi", jacobian, residual)
            diagonal = np.einsum("bii->bi", hessian)
            damped = hessian + np.einsum(
                "bi,ij->bij", damping[:, None] * diagonal, np.eye(theta.shape[1])
            )
            trial = theta - np.linalg.solve(damped, slope[..., None])[..., 0]
            new_residual, new_jacobian = self.residual(trial)
            new_cost = 0.5 * (new_residual**2).sum(1)
            better = new_cost < cost
            gain = np.where(better, cost - new_cost, 0.0)
            theta = np.where(better[:, None], trial, theta)
            residual = np.where(better[:, None], new_residual, residual)
            jacobian = np.where(better[:, None, None], new_jacobian, jacobian)
            cost = np.where(better, new_cost, cost)
            damping = np.clip(np.where(better, damping / 4, damping * 4), 1e-9, 1e9)
            if not np.any(gain > 1e-7 * cost) and np.all(damping > 1):
                break
        return theta, cost, np.einsum("bri,brj->bij", jacobian, jacobian)


@dataclass(frozen=True, slots=True)
class _Member:
    """One fitted member of the family and its share in the estimate."""

    weight: float
    exponent: float
    theta: Array
    kernel: Kernel
    solved: Array


class EndToEndEstimator:
    """Smooth hinge over CPU, GPU and memory time, plus an interpolated residual.

    ``T = b + s_c/f_c + s_g/f_g + ((k_c/f_c)^p + (k_g/f_g)^p + M(f_emc)^p)^(1/p)``, fitted in
    relative error for each p of ``exponents`` with weak priors, averaged by evidence (Laplace).
    Clocks that do not vary over the runs are left out; their effect is then in the offset.

    Args:
        exponents: Members of the family.
        scales: Candidates for how the residual behaves.

    Attributes:
        exponent_weights_: Share of each exponent in the estimate, ``{p: weight}``.
        fastest_us_: Fastest run, us.
    """

    def __init__(
        self,
        *,
        exponents: tuple[float, ...] = EXPONENTS,
        scales: tuple[Scale, ...] = SCALES,
    ) -> None:
        self.exponents, self.scales = exponents, scales

    def fit(self, X: ArrayLike, y: ArrayLike) -> "EndToEndEstimator":
        """Fit to runs.

        Args:
            X: Clocks ``[n, 3]``: CPU, GPU, EMC, Hz. A column that is not known is constant.
            y: Latency, us, ``[n]``.

        Raises:
            ProfileError: Too few runs, no clock varies, or a value is not positive and finite.
        """
        x_hz, time_us = check_runs(X, y)
        layout = _Layout.of(x_hz)
        if not layout.active:
            raise ProfileError(
                "nothing to learn from",
                where="column cpu_hz, gpu_hz, emc_hz",
                why="all runs were made at one operating point",
                hint="measure at other clocks too; flamegov profile plan lists them",
            )
        self.fastest_us_ = float(time_us.min())
        self._layout = layout
        points = self._coordinates(x_hz)
        self._kernels = [Kernel(points, scale) for scale in self.scales]
        self._members = self._fit_members(layout.terms(x_hz), np.log(time_us / self.fastest_us_))
        self.exponent_weights_ = {
            p: sum(m.weight for m in self._members if m.exponent == p) for p in self.exponents
        }
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Estimate latency.

        Args:
            X: Clocks ``[m, 3]`` as in :meth:`fit`.

        Returns:
            Latency, us, ``[m]``.
        """
        x_hz = np.atleast_2d(np.asarray(X, dtype=np.float64))
        terms, points = self._layout.terms(x_hz), self._coordinates(x_hz)
        log_time = np.zeros(len(x_hz))
        for member in self._members:
            physics, _ = _log_time(member.theta[None], np.array([member.exponent]), terms)
            log_time += member.weight * (physics[0] + member.kernel.cross(points) @ member.solved)
        result: Array = self.fastest_us_ * np.exp(log_time)
        return result

    def _coordinates(self, x_hz: Array) -> Array:
        coordinates: Array = np.log(x_hz[:, self._layout.active])
        return coordinates

    def _fit_members(self, terms: tuple[Array, Array, int], target: Array) -> list[_Member]:
        layout = self._layout
        starts = _starts(layout)
        pairs = [(p, s) for p in self.exponents for s in range(len(self.scales))]
        covariances = [kernel.covariance() for kernel in self._kernels]
        factors = [np.linalg.cholesky(c) for c in covariances]
        whiten = np.stack([np.linalg.inv(factors[s]) for _, s in pairs])
        problem = _Problem(
            terms,
            target,
            np.repeat([p for p, _ in pairs], len(starts)),
            np.repeat(whiten, len(starts), axis=0),
            layout,
        )
        theta, cost, hessian = problem.solve(np.tile(starts, (len(pairs), 1)))
        shape = (len(pairs), len(starts))
        best = np.arange(len(pairs)) * len(starts) + cost.reshape(shape).argmin(1)
        theta, cost, hessian = theta[best], cost[best], hessian[best]
        spans = np.array([np.log(np.diag(factors[s])).sum() for _, s in pairs])
        evidence = -cost - 0.5 * np.linalg.slogdet(hessian)[1] - spans
        fitted, _ = _log_time(theta, np.array([p for p, _ in pairs]), terms)
        weights = softmax(evidence)
        weights = np.where(weights < _KEEP, 0.0, weights)
        weights /= weights.sum()
        return [
            _Member(
                float(weights[i]),
                p,
                theta[i],
                self._kernels[s],
                np.linalg.solve(covariances[s], target - fitted[i]),
            )
            for i, (p, s) in enumerate(pairs)
            if weights[i] > 0
        ]


def _starts(layout: _Layout) -> Array:
    """Prior mean, and for each term the case that it dominates the others, ``[S, P]``."""
    used = len(layout.active)
    starts = [layout.mean]
    for t in range(used if used > 1 else 0):
        start = layout.mean.copy()
        start[:used] -= 1.0
        start[t] += 2.0
        starts.append(start)
    return np.array(starts)


def check_runs(X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Check runs and bring them to arrays.

    Args:
        X: Clocks ``[n, 3]``: CPU, GPU, EMC, Hz.
        y: Latency, us, ``[n]``.

    Raises:
        ProfileError: Too few runs, a wrong shape, or a value that is not positive and finite; names
            row and column.
    """
    x_hz, time_us = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x_hz.ndim != 2 or x_hz.shape[1] != len(_DOMAINS) or time_us.shape != (len(x_hz),):
        raise ProfileError(
            "runs have the wrong shape",
            why=f"clocks {x_hz.shape}, latency {time_us.shape}",
            hint="give clocks as [n, 3] (CPU, GPU, EMC) and one latency for each",
        )
    table = np.column_stack([x_hz, time_us])
    wrong = ~(np.isfinite(table) & (table > 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ProfileError(
            "unusable run",
            where=f"row {row}, column {(*_DOMAINS, 'latency_us')[column]}",
            why=f"{table[row, column]:g} is not a positive finite number",
            hint="measure the run again or drop it",
        )
    if len(time_us) < MIN_RUNS:
        raise ProfileError(
            "too few runs",
            why=f"{len(time_us)} given, {MIN_RUNS} needed",
            hint="measure at more clocks; flamegov profile plan lists them",
        )
    return x_hz, time_us
