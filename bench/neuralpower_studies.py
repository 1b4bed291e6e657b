"""The NeuralPower paper's studies, repeated on the simulated board; all figures are simulated.

Another board stands in for its second GPU, another engine for its second framework.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from bench.neuralpower_layers import random_cifar, true_network
from bench.neuralpower_plant import Trained, layer_errors, network_errors, train
from estimators.neuralpower.features import Target
from estimators.neuralpower.lasso import PaperModel
from estimators.neuralpower.score import rmspe
from estimators.neuralpower.shapes import Columns
from estimators.residual import Array

ORDERS = (1, 2, 3)
SPREAD_NETWORKS = 200
_CIFAR_BATCH = 16
_RETRAIN_SHARE = 0.35  # of the paper's number of layers: enough to tell, a third of the time


def all_studies(trained: Trained) -> dict[str, Any]:
    """Run all of them on what was learned already."""
    return {
        "order_sweep": order_sweep(trained),
        "retrain": {
            "orin-nano (another board)": retrain(trained, board="orin-nano"),
            "fused (another engine)": retrain(trained, engine="fused"),
        },
        "overhead": {
            "collect_simulated_min": round(trained.times_s["collect_simulated"] / 60, 1),
            "fit_min": round(trained.times_s["fit"] / 60, 2),
            "paper": "< 10 min to collect, < 20 min to train",
        },
        "energy_spread": energy_spread(trained),
    }


def order_sweep(trained: Trained) -> dict[str, Any]:
    """Lasso at every polynomial order (Fig. 3): cross-validated RMSE, in-sample RMSPE, size."""
    result: dict[str, Any] = {}
    for kind, measured in trained.sets.items():
        for target, values in _targets(measured.runtime_ms, measured.power_w):
            orders = ORDERS if target == "runtime" else ORDERS[:2]
            result[f"{kind}_{target}"] = {
                str(order): _order(measured.layers, values, target, order) for order in orders
            }
    return result


def _targets(time_ms: Array, power_w: Array) -> tuple[tuple[Target, Array], tuple[Target, Array]]:
    return ("runtime", time_ms), ("power", power_w)


def _order(layers: Columns, values: Array, target: Target, order: int) -> dict[str, float]:
    model = PaperModel(target, degrees=(order,)).fit(layers, values)
    return {
        "cv_rmse": float(f"{model.cv_rmse_[order]:.4g}"),
        "in_sample_rmspe": round(rmspe(model.predict(layers), values), 2),
        "size": model.size_,
    }


def retrain(trained: Trained, *, board: str = "", engine: str = "") -> dict[str, Any]:
    """Measure and learn again elsewhere; and what the old models would have said there."""
    subject = trained.subject
    elsewhere = replace(subject, board=board or subject.board, engine=engine or subject.engine)
    start = time.perf_counter()
    again = train(elsewhere, scale=_RETRAIN_SHARE)
    seconds = time.perf_counter() - start
    old = replace(trained, subject=elsewhere)
    return {
        **{k: v for k, v in layer_errors(again).items() if not k.endswith("constant_rmspe")},
        "network_energy_err_pct": network_errors(again)["network_energy_err_pct"],
        "network_energy_err_old_models_pct": network_errors(old)["network_energy_err_pct"],
        "seconds": round(seconds, 1),
    }


def energy_spread(trained: Trained) -> dict[str, Any]:
    """Energy per input over random networks of CIFAR scale; the paper tells of more than 40x."""
    energy_mj = np.array(
        [
            true_network(trained.subject, random_cifar(seed), _CIFAR_BATCH).network_mj
            for seed in range(1000, 1000 + SPREAD_NETWORKS)
        ]
    )
    return {
        "networks": SPREAD_NETWORKS,
        "batch": _CIFAR_BATCH,
        "least_mj": round(float(energy_mj.min()) / _CIFAR_BATCH, 2),
        "most_mj": round(float(energy_mj.max()) / _CIFAR_BATCH, 2),
        "ratio": round(float(energy_mj.max() / energy_mj.min()), 1),
    }
