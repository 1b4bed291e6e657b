"""A layer as its static configuration: what it computes and moves, on whatever GPU.

Everything that is put under a logarithm later is refused here if it is zero; padding may be zero
and is never put under one. Sizes are elements, not bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from estimators.errors import ProfileError
from estimators.residual import Array

Kind = Literal["conv", "fc", "pool"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_POSITIVE = (
    *("batch", "in_c", "in_h", "in_w", "out_c", "out_h", "out_w"),
    *("k_h", "k_w", "stride_h", "stride_w", "groups"),
)
_COLUMNS = (*_POSITIVE, "pad_h", "pad_w")


def out_size(size: int, kernel: int, stride: int, pad: int) -> int:
    """Size of a convolution's or pooling's output along one axis."""
    return (size + 2 * pad - kernel) // stride + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer. Make it with :meth:`conv`, :meth:`fc` or :meth:`pool`.

    Attributes:
        kind: Layer type.
        batch: Inputs per run, N.
        in_c: Input channels.
        in_h: Input height.
        in_w: Input width.
        out_c: Output channels.
        out_h: Output height.
        out_w: Output width.
        k_h: Kernel height.
        k_w: Kernel width.
        pad_h: Rows of padding on each side; need not be whole where the two sides differ.
        pad_w: Columns of padding on each side.
        stride_h: Vertical stride.
        stride_w: Horizontal stride.
        groups: Groups of channels that do not see each other.

    Raises:
        ProfileError: A size is zero, negative or not finite.
    """

    kind: Kind
    batch: int
    in_c: int
    in_h: int = 1
    in_w: int = 1
    out_c: int
    out_h: int = 1
    out_w: int = 1
    k_h: int = 1
    k_w: int = 1
    pad_h: float = 0
    pad_w: float = 0
    stride_h: int = 1
    stride_w: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes that no logarithm can be taken of."""
        if self.kind not in KINDS:
            raise ProfileError(
                f"unknown layer type '{self.kind}'", hint=f"known are {', '.join(KINDS)}"
            )
        for name in _COLUMNS:
            value = getattr(self, name)
            least = 1 if name in _POSITIVE else 0
            if not (np.isfinite(value) and value >= least):
                raise ProfileError(
                    "unusable layer",
                    where=f"{self.kind}, {name}",
                    why=f"{value:g} is below {least} or not finite",
                    hint="correct the size; kernels larger than the padded input give no output",
                )

    @classmethod
    def conv(
        cls,
        batch: int,
        in_c: int,
        size: tuple[int, int],
        out_c: int,
        kernel: tuple[int, int],
        *,
        stride: tuple[int, int] = (1, 1),
        pad: tuple[int, int] = (0, 0),
        groups: int = 1,
    ) -> "LayerShape":
        """Make a convolution; ``size`` is (height, width) of the input."""
        return cls._window("conv", batch, (in_c, out_c), size, (kernel, stride, pad), groups=groups)

    @classmethod
    def pool(
        cls,
        batch: int,
        channels: int,
        size: tuple[int, int],
        kernel: tuple[int, int],
        *,
        stride: tuple[int, int] = (1, 1),
        pad: tuple[int, int] = (0, 0),
    ) -> "LayerShape":
        """Make a pooling layer; ``size`` is (height, width) of the input."""
        return cls._window("pool", batch, (channels, channels), size, (kernel, stride, pad))

    @classmethod
    def fc(
        cls, batch: int, in_c: int, out_c: int, *, size: tuple[int, int] = (1, 1)
    ) -> "LayerShape":
        """Make a fully connected layer; ``size`` is (height, width) of what it is applied to."""
        return cls(kind="fc", batch=batch, in_c=in_c, in_h=size[0], in_w=size[1], out_c=out_c)

    @classmethod
    def _window(
        cls,
        kind: Kind,
        batch: int,
        channels: tuple[int, int],
        size: tuple[int, int],
        window: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
        *,
        groups: int = 1,
    ) -> "LayerShape":
        kernel, stride, pad = window
        if min(stride) < 1:
            raise ProfileError("unusable layer", where=f"{kind}, stride", why=f"{stride}")
        out = [out_size(*axis) for axis in zip(size, kernel, stride, pad, strict=True)]
        return cls(
            kind=kind,
            batch=batch,
            in_c=channels[0],
            in_h=size[0],
            in_w=size[1],
            out_c=channels[1],
            out_h=out[0],
            out_w=out[1],
            k_h=kernel[0],
            k_w=kernel[1],
            pad_h=pad[0],
            pad_w=pad[1],
            stride_h=stride[0],
            stride_w=stride[1],
            groups=groups,
        )

    @property
    def in_elements(self) -> int:
        """Elements read besides weights, padding not counted."""
        return self.batch * self.in_c * self.in_h * self.in_w

    @property
    def out_elements(self) -> int:
        """Elements written."""
        return self.batch * self.out_c * self.out_h * self.out_w

    @property
    def weights(self) -> int:
        """Parameters read, without bias."""
        if self.kind == "pool":
            return 0
        window = self.in_h * self.in_w if self.kind == "fc" else self.k_h * self.k_w
        return window * self.in_c * self.out_c // self.groups

    @property
    def flop(self) -> int:
        """Floating-point operations, two per multiply-accumulate; pooling counts its window."""
        places = self.batch * self.out_h * self.out_w
        if self.kind == "pool":
            return 2 * places * self.k_h * self.k_w * self.in_c
        return 2 * places * self.weights

    @property
    def identity(self) -> tuple[float, ...]:
        """What makes it the same layer at another batch size: all columns but the batch."""
        return tuple(float(getattr(self, name)) for name in _COLUMNS[1:])


@dataclass(frozen=True, slots=True)
class Columns:
    """Layers of one type as float64 columns ``[n]``, named as in :class:`LayerShape`."""

    kind: Kind
    shapes: tuple[LayerShape, ...]
    _columns: dict[str, Array] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, shapes: Iterable[LayerShape]) -> "Columns":
        """Collect layers.

        Raises:
            ProfileError: There are none, or they are of different types.
        """
        kept = tuple(shapes)
        kinds = sorted({shape.kind for shape in kept})
        if len(kinds) != 1:
            raise ProfileError(
                "layers of one type expected", why=f"given: {', '.join(kinds) or 'none'}"
            )
        return cls(kept[0].kind, kept)

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, name: str) -> Array:
        if name not in self._columns:
            column = np.array([getattr(shape, name) for shape in self.shapes], dtype=np.float64)
            column.flags.writeable = False
            self._columns[name] = column
        return self._columns[name]

    def take(self, rows: NDArray[np.int64]) -> "Columns":
        """Keep some rows."""
        return Columns(self.kind, tuple(self.shapes[int(row)] for row in rows))
