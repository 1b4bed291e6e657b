"""Convolutional networks as the papers and torchvision define them.

A conv layer carries its batch norm, activation and residual add, because that is what a profiler
can cut out and run alone. Sources: ResNet arXiv 1512.03385, VGG 1409.1556, DenseNet 1608.06993,
MobileNetV2 1801.04381, AlexNet (torchvision's one-column form), Network-in-Network 1312.4400 (the
ImageNet model of its authors), OverFeat 1312.6229 (fast model), CIFAR10-6conv (named by
NeuralPower, arXiv 1710.05420; its widths are assumed), YOLOv8n (Ultralytics' yolov8.yaml).
"""

from dataclasses import dataclass, field

from bench.plant.networks.ops import Layer, Network, Op, elementwise, view


@dataclass
class Tape:
    """Writes layers down while it follows the shape of the activations.

    Attributes:
        channels: Channels of the running activation.
        size: Its height and width (square).
        layers: What has been written.
    """

    channels: int
    size: int
    layers: list[Layer] = field(default_factory=list)

    def conv(
        self,
        out: int,
        kernel: int,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        *,
        norm: bool = True,
        act: bool = True,
        add: bool = False,
        pre_norm: bool = False,
        kind: str = "relu",
    ) -> None:
        """Add a convolution with what belongs to it; a bias exists only without ``norm``.

        ``kind`` names the activation; where the residual is added does not matter here.
        """
        inp, size = self.channels, self.size
        pad = kernel // 2 if pad is None else pad
        new = (size + 2 * pad - kernel) // stride + 1
        before, after = inp * size * size, out * new * new
        weights = out * inp // groups * kernel * kernel
        biased = not (norm or pre_norm)
        conv = Op(
            "conv" if groups == 1 else "dwconv",
            macs=float(weights * new * new),
            weights=weights + (out if biased else 0),
            acts=before + after,
            out=after,
        )
        head = [_norm(inp, before), elementwise("relu", before)] if pre_norm else []
        tail = [_norm(out, after)] if norm else []
        tail += [elementwise("add", after, 2)] if add else []
        tail += [elementwise(kind, after)] if act else []
        params = conv.weights + (2 * out if norm else 0) + (2 * inp if pre_norm else 0)
        config = {
            "in_channels": inp,
            "out_channels": out,
            "in_size": size,
            "kernel": kernel,
            "stride": stride,
            "groups": groups,
            "norm": int(norm or pre_norm),
            "act": int(act or pre_norm),
            "add": int(add),
        }
        ops = (*head, conv, *tail)
        self._write("conv", config, ops, params)
        self.channels, self.size = out, new

    def pool(self, kernel: int, stride: int, pad: int = 0, *, ceil: bool = False) -> None:
        """Add a pooling layer."""
        span = self.size + 2 * pad - kernel
        new = (span + (stride - 1 if ceil else 0)) // stride + 1
        before, after = self.channels * self.size**2, self.channels * new**2
        op = Op("pool", macs=float(after * kernel**2), acts=before + after, out=after)
        config = {"in_channels": self.channels, "in_size": self.size, "kernel": kernel}
        self._write("pool", {**config, "stride": stride}, (op,), 0)
        self.size = new

    def cat(self, channels: int) -> None:
        """Add a concatenation that ends with ``channels`` (eager copies all of it)."""
        elements = channels * self.size**2
        op = Op("cat", acts=2 * elements, out=elements, fusable=True)
        self._write("cat", {"out_channels": channels, "in_size": self.size}, (op,), 0)
        self.channels = channels

    def resize(self, size: int) -> None:
        """Add a nearest-neighbour upsampling."""
        before, after = self.channels * self.size**2, self.channels * size**2
        op = Op("resize", macs=float(after), acts=before + after, out=after)
        self._write("resize", {"in_channels": self.channels, "in_size": self.size}, (op,), 0)
        self.size = size

    def norm_act(self) -> None:
        """Add a batch norm and ReLU that stand alone."""
        elements = self.channels * self.size**2
        ops = (_norm(self.channels, elements), elementwise("relu", elements))
        config = {"in_channels": self.channels, "in_size": self.size}
        self._write("norm", config, ops, 2 * self.channels)

    def linear(self, out: int, *, act: bool = False) -> None:
        """Add a fully connected layer with bias; flattens first."""
        inp = self.channels * self.size**2
        op = Op("linear", macs=float(inp * out), weights=inp * out + out, acts=inp + out, out=out)
        ops: list[Op] = [view("flatten")] if self.size > 1 or not act else []
        ops += [op, *([elementwise("relu", out)] if act else [])]
        config = {"in_features": inp, "out_features": out, "act": int(act)}
        self._write("linear", config, tuple(ops), op.weights)
        self.channels, self.size = out, 1

    def network(self, name: str) -> Network:
        """Close the tape."""
        return Network(name, tuple(self.layers))

    def _write(self, kind: str, config: dict[str, int], ops: tuple[Op, ...], params: int) -> None:
        self.layers.append(Layer(kind, tuple(config.items()), ops, params, modules=len(ops)))


def _norm(channels: int, elements: int) -> Op:
    """Batch norm in inference: four vectors of parameters, one pass over the data."""
    return Op(
        "bn",
        macs=2.0 * elements,
        weights=4 * channels,
        acts=2 * elements,
        out=elements,
        fusable=True,
    )


def resnet50() -> Network:
    """ResNet50, 224 x 224."""
    t = Tape(3, 224)
    t.conv(64, 7, 2)
    t.pool(3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            inp, size = t.channels, t.size
            t.conv(width, 1)
            t.conv(width, 3, stride)
            t.conv(4 * width, 1, add=bool(block), act=bool(block))
            if not block:
                t.channels, t.size = inp, size
                t.conv(4 * width, 1, stride, add=True)
    t.pool(7, 1)
    t.linear(1000)
    return t.network("resnet50")


def vgg16() -> Network:
    """VGG16 without batch norm, 224 x 224."""
    t = Tape(3, 224)
    for width, convs in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convs):
            t.conv(width, 3, norm=False)
        t.pool(2, 2)
    t.pool(1, 1)
    t.linear(4096, act=True)
    t.linear(4096, act=True)
    t.linear(1000)
    return t.network("vgg16")


def densenet121() -> Network:
    """DenseNet121, growth 32, 224 x 224."""
    t = Tape(3, 224)
    t.conv(64, 7, 2)
    t.pool(3, 2, 1)
    for stage, blocks in enumerate((6, 12, 24, 16)):
        channels = t.channels
        for _ in range(blocks):
            t.cat(channels)
            t.conv(128, 1, norm=False, act=False, pre_norm=True)
            t.conv(32, 3, norm=False, act=False, pre_norm=True)
            channels += 32
        t.cat(channels)
        if stage < 3:
            t.conv(channels // 2, 1, norm=False, act=False, pre_norm=True)
            t.pool(2, 2)
    t.norm_act()
    t.pool(7, 1)
    t.linear(1000)
    return t.network("densenet121")


def mobilenetv2() -> Network:
    """MobileNetV2, width 1.0, 224 x 224."""
    t = Tape(3, 224)
    t.conv(32, 3, 2)
    early = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2))
    late = ((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, out, repeats, first in early + late:
        for index in range(repeats):
            stride = 1 if index else first
            inp = t.channels
            if expand > 1:
                t.conv(inp * expand, 1)
            t.conv(inp * expand, 3, stride, groups=inp * expand)
            t.conv(out, 1, act=False, add=stride == 1 and inp == out)
    t.conv(1280, 1)
    t.pool(7, 1)
    t.linear(1000)
    return t.network("mobilenetv2")


def alexnet() -> Network:
    """AlexNet in one column, 224 x 224."""
    t = Tape(3, 224)
    t.conv(64, 11, 4, 2, norm=False)
    t.pool(3, 2)
    t.conv(192, 5, norm=False)
    t.pool(3, 2)
    for width in (384, 256, 256):
        t.conv(width, 3, norm=False)
    t.pool(3, 2)
    t.linear(4096, act=True)
    t.linear(4096, act=True)
    t.linear(1000)
    return t.network("alexnet")


def nin() -> Network:
    """Network-in-Network for ImageNet, 227 x 227."""
    t = Tape(3, 227)
    for width, kernel, stride, pad in ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1)):
        t.conv(width, kernel, stride, pad, norm=False)
        t.conv(width, 1, norm=False)
        t.conv(width, 1, norm=False)
        t.pool(3, 2)
    t.conv(1024, 3, norm=False)
    t.conv(1024, 1, norm=False)
    t.conv(1000, 1, norm=False)
    t.pool(t.size, 1)
    return t.network("nin")


def overfeat() -> Network:
    """OverFeat, fast model, 231 x 231."""
    t = Tape(3, 231)
    t.conv(96, 11, 4, 0, norm=False)
    t.pool(2, 2)
    t.conv(256, 5, 1, 0, norm=False)
    t.pool(2, 2)
    for width in (512, 1024, 1024):
        t.conv(width, 3, norm=False)
    t.pool(2, 2)
    t.linear(3072, act=True)
    t.linear(4096, act=True)
    t.linear(1000)
    return t.network("overfeat")


def cifar10_6conv() -> Network:
    """The six-convolution network that NeuralPower trains on CIFAR-10, 32 x 32."""
    t = Tape(3, 32)
    for width in (32, 64, 128):
        t.conv(width, 3, norm=False)
        t.conv(width, 3, norm=False)
        t.pool(2, 2)
    t.linear(1024, act=True)
    t.linear(512, act=True)
    t.linear(10)
    return t.network("cifar10_6conv")


def yolov8n() -> Network:
    """YOLOv8n with 80 classes, 640 x 640, without the choice of boxes after it."""
    t = Tape(3, 640)
    kept: list[tuple[int, int]] = []
    for width, repeats in ((32, 1), (64, 2), (128, 2), (256, 1)):
        if not kept:
            t.conv(16, 3, 2, kind="silu")
        t.conv(width, 3, 2, kind="silu")
        _c2f(t, width, repeats, shortcut=True)
        kept.append((t.channels, t.size))
    _sppf(t, 256)
    kept[-1] = (t.channels, t.size)
    heads = []
    for channels, size in (kept[2], kept[1]):
        t.resize(size)
        t.cat(t.channels + channels)
        _c2f(t, channels, 1, shortcut=False)
        heads.append((t.channels, t.size))
    outputs = [heads[1]]
    for channels, _ in (heads[0], kept[3]):
        t.conv(t.channels, 3, 2, kind="silu")
        t.cat(t.channels + channels)
        _c2f(t, channels, 1, shortcut=False)
        outputs.append((t.channels, t.size))
    for channels, size in outputs:
        for width in (64, 80):
            t.channels, t.size = channels, size
            t.conv(width, 3, kind="silu")
            t.conv(width, 3, kind="silu")
            t.conv(width, 1, norm=False, act=False)
    t.channels, t.size = 16, 145  # 4 x 8400 distributions of 16 bins, about 2 x 145 x 145
    t.conv(1, 1, norm=False, act=False)
    return t.network("yolov8n")


def _c2f(t: Tape, out: int, repeats: int, *, shortcut: bool) -> None:
    """Split, pass one half through bottlenecks, put all parts together."""
    half = out // 2
    t.conv(out, 1, kind="silu")
    for _ in range(repeats):
        t.channels = half
        t.conv(half, 3, kind="silu")
        t.conv(half, 3, kind="silu", add=shortcut)
    t.cat((2 + repeats) * half)
    t.conv(out, 1, kind="silu")


def _sppf(t: Tape, out: int) -> None:
    """Three poolings one after the other, put together."""
    t.conv(out // 2, 1, kind="silu")
    for _ in range(3):
        t.pool(5, 1, 2)
    t.cat(2 * out)
    t.conv(out, 1, kind="silu")
