"""Boosted trees as plain arrays: what is fitted with XGBoost is used without it."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.residual import Array

_ROUNDS, _DEPTH, _RATE, _LEAF = 80, 3, 0.1, 2


@dataclass(frozen=True, slots=True)
class TreeArrays:
    """A sum of trees; T trees padded to N nodes.

    Attributes:
        feature: Column that a node splits on, ``[T, N]``; -1 at leaves.
        threshold: A row goes left if its value is below this, float32 ``[T, N]``.
        left: Left child, ``[T, N]``; the node itself at leaves.
        right: Right child, ``[T, N]``; the node itself at leaves.
        value: What a leaf adds, ``[T, N]``.
        base: Value without any tree.
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float32]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Array
    base: float

    def __call__(self, features: Array) -> Array:
        """Evaluate rows ``[n, d]`` to ``[n]``."""
        rows = np.asarray(features, dtype=np.float32)
        total = np.full(len(rows), self.base)
        trees = np.arange(len(self.feature))[:, None]
        node = np.zeros((len(self.feature), len(rows)), dtype=np.int64)
        while True:
            feature = self.feature[trees, node]
            inner = feature >= 0
            if not inner.any():
                break
            x = rows[np.arange(len(rows))[None, :], np.maximum(feature, 0)]
            goes_left = x < self.threshold[trees, node]
            node = np.where(goes_left, self.left[trees, node], self.right[trees, node])
        result: Array = total + self.value[trees, node].sum(axis=0)
        return result

    @classmethod
    def fit(cls, features: Array, target: Array, *, seed: int = 0) -> "TreeArrays":
        """Boost small trees with XGBoost and export them.

        Args:
            features: ``[n, d]``.
            target: ``[n]``.
            seed: Seed of the fit.
        """
        import xgboost

        model = xgboost.XGBRegressor(
            n_estimators=_ROUNDS,
            max_depth=_DEPTH,
            learning_rate=_RATE,
            min_child_weight=_LEAF,
            subsample=0.9,
            n_jobs=1,
            random_state=seed,
        )
        model.fit(np.asarray(features, dtype=np.float32), target)
        return cls.of_booster(json.loads(bytes(model.get_booster().save_raw("json"))))

    @classmethod
    def of_booster(cls, document: dict[str, Any]) -> "TreeArrays":
        """Read XGBoost's JSON model."""
        learner = document["learner"]
        trees = learner["gradient_booster"]["model"]["trees"]
        width = max(len(tree["left_children"]) for tree in trees)
        nodes = np.tile(np.arange(width), (len(trees), 1))
        feature = np.full(nodes.shape, -1, dtype=np.int64)
        threshold = np.zeros(nodes.shape, dtype=np.float32)
        left, right = nodes.copy(), nodes.copy()
        value = np.zeros(nodes.shape)
        for t, tree in enumerate(trees):
            lefts, rights = np.array(tree["left_children"]), np.array(tree["right_children"])
            conditions = np.array(tree["split_conditions"], dtype=np.float32)
            inner = np.flatnonzero(lefts >= 0)
            leaf = np.flatnonzero(lefts < 0)
            feature[t, inner] = np.array(tree["split_indices"])[inner]
            threshold[t, inner] = conditions[inner]
            left[t, inner], right[t, inner] = lefts[inner], rights[inner]
            value[t, leaf] = conditions[leaf]
        base = str(learner["learner_model_param"]["base_score"]).strip("[]")
        return cls(feature, threshold, left, right, value, float(base))
