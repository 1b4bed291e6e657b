"""The small network of the zTT agent: two hidden layers, mean squared error, Adam.

As in the released agent (zTT, MobiSys 2021): weights drawn from N(0, 0.05), zero biases, ReLU on
both hidden layers, a linear output for each action, Adam at a rate of 0.05 with the defaults of
Keras. In numpy, because a network of 153 parameters is smaller than the cost of any framework.
"""

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
        self.parameters: list[Array] = []
        for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True):
            self.parameters.append(rng.normal(0.0, INITIAL_DEVIATION, (fan_in, fan_out)))
            self.parameters.append(np.zeros(fan_out))
        self._first = [np.zeros_like(p) for p in self.parameters]
        self._second = [np.zeros_like(p) for p in self.parameters]
        self._steps = 0

    def forward(self, x: Array) -> Array:
        """Evaluate inputs ``[..., in]``; returns ``[..., out]``."""
        *hidden, (weight, bias) = self._layers()
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
        inputs, layers = [x], self._layers()
        for weight, bias in layers[:-1]:
            inputs.append(np.maximum(inputs[-1] @ weight + bias, 0.0))
        weight, bias = layers[-1]
        error = 2.0 * (inputs[-1] @ weight + bias - target) / target.size
        result: list[Array] = []
        for (weight, _), seen in zip(reversed(layers), reversed(inputs), strict=True):
            result[:0] = [seen.T @ error, error.sum(axis=0)]
            error = (error @ weight.T) * (seen > 0.0)
        return result

    def fit(self, x: Array, target: Array) -> None:
        """Make one step of Adam on a batch; arguments as :meth:`gradient`."""
        gradient = self.gradient(x, target)
        self._steps += 1
        rate = LEARNING_RATE * np.sqrt(1.0 - BETA_2**self._steps) / (1.0 - BETA_1**self._steps)
        for p, g, m, v in zip(self.parameters, gradient, self._first, self._second, strict=True):
            m[:] += (1.0 - BETA_1) * (g - m)
            v[:] += (1.0 - BETA_2) * (g * g - v)
            p[:] -= rate * m / (np.sqrt(v) + EPSILON)

    def copy_from(self, other: "Network") -> None:
        """Take the parameters of another network of the same shape."""
        self.put(other.parameters)

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

    def _layers(self) -> list[tuple[Array, Array]]:
        return list(zip(self.parameters[::2], self.parameters[1::2], strict=True))
