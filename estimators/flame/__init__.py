"""FLAME: latency tables from layers profiled at few clocks (arXiv 2604.15357)."""

from estimators.flame.estimator import FlameEstimator, Mode

__all__ = ["FlameEstimator", "Mode"]
