"""The small network of the zTT agent: two hidden layers, mean squared error, Adam.

As in the released agent (zTT, MobiSys 2021): weights drawn from N(0, 0.05), zero biases, ReLU on
both hidden layers, a linear output for each action, Adam at a rate of 0.05 with the defaults of
Keras. In numpy, because a network of 153 parameters is smaller than the cost of any framework.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.errors import PolicyError

Array = NDArray[np.float64]

INITIAL_DEVIATION = 0.05
LEARNING_RATE = 0.05
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7


class Network:
    """A multilayer perceptron that learns by Adam.

    Args:
        sizes: Width of each layer, the input first.
        rng: Source of the first weights.

    Attributes:
        parameters: Weights ``[in, out]`` and biases ``[out]`` in turn, layer by layer.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator) -> None:
        shapes: list[tuple[int, ...]] = []
        for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True):
            shapes += [(fan_in, fan_out), (fan_out,)]
        self._shapes = shapes
        self._flat: Array = np.zeros(sum(math.prod(shape) for shape in shapes))
        self._first, self._second = np.zeros_like(self._flat), np.zeros_like(self._flat)
        self._steps = 0
        self.parameters = self._views(self._flat)
        for weight in self.parameters[::2]:
            weight[...] = rng.normal(0.0, INITIAL_DEVIATION, weight.shape)
        self._layers = list(zip(self.parameters[::2], self.parameters[1::2], strict=True))

    def forward(self, x: Array) -> Array:
        """Evaluate inputs ``[..., in]``; returns ``[..., out]``."""
        *hidden, (weight, bias) = self._layers
        for w, b in hidden:
            x = np.maximum(x @ w + b, 0.0)
        result: Array = x @ weight + bias
        return result

    def loss(self, x: Array, target: Array) -> float:
        """Mean over batch and outputs of the squared error."""
        return float(np.mean((self.forward(x) - target) ** 2))

    def gradient(self, x: Array, target: Array) -> list[Array]:
        """Differentiate the loss by each parameter.

        Args:
            x: Inputs ``[n, in]``.
            target: Wanted outputs ``[n, out]``.
        """
        return self._views(self._gradient(x, target))

    def fit(self, x: Array, target: Array) -> None:
        """Make one step of Adam on a batch; arguments as :meth:`gradient`."""
        gradient = self._gradient(x, target)
        self._steps += 1
        rate = LEARNING_RATE * math.sqrt(1.0 - BETA_2**self._steps) / (1.0 - BETA_1**self._steps)
        self._first += (1.0 - BETA_1) * (gradient - self._first)
        self._second += (1.0 - BETA_2) * (gradient * gradient - self._second)
        self._flat -= rate * self._first / (np.sqrt(self._second) + EPSILON)

    def copy_from(self, other: "Network") -> None:
        """Take the parameters of another network of the same shape."""
        self._flat[:] = other._flat

    def put(self, parameters: Sequence[Array]) -> None:
        """Take parameters.

        Raises:
            PolicyError: Their shapes do not fit.
        """
        want, got = [p.shape for p in self.parameters], [p.shape for p in parameters]
        if want != got:
            raise PolicyError(
                "weights do not fit the network",
                why=f"shapes {got}, not {want}",
                hint="train them with the same grid on a board with as many clocks",
            )
        for mine, theirs in zip(self.parameters, parameters, strict=True):
            mine[...] = theirs

    def _gradient(self, x: Array, target: Array) -> Array:
        inputs, layers = [x], self._layers
        for weight, bias in layers[:-1]:
            inputs.append(np.maximum(inputs[-1] @ weight + bias, 0.0))
        weight, bias = layers[-1]
        error = 2.0 * (inputs[-1] @ weight + bias - target) / target.size
        result = np.empty_like(self._flat)
        slopes = self._views(result)
        for place in reversed(range(len(layers))):
            seen = inputs[place]
            np.matmul(seen.T, error, out=slopes[2 * place])
            error.sum(axis=0, out=slopes[2 * place + 1])
            if place:
                error = (error @ layers[place][0].T) * (seen > 0.0)
        return result

    def _views(self, flat: Array) -> list[Array]:
        """See one array, which Adam goes through at once, as weights and biases in turn."""
        views, start = [], 0
        for shape in self._shapes:
            size = math.prod(shape)
            views.append(flat[start : start + size].reshape(shape))
            start += size
        return views
