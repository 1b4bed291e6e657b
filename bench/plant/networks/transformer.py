"""Decoder-only language models, as one decode step or as prefill of a whole prompt.

In decode one token passes; the cache of keys and values grows the reads with the context. In
prefill the context is the prompt: linear layers grow with it, attention with its square. Ops follow
what the Hugging Face eager implementations issue, views included (they cost the host, not the GPU).
Sources: GPT-2 (openai/gpt2-large config.json), Qwen2 arXiv 2407.10671, Llama 3 2407.21783, Qwen3
2505.09388.
"""

from dataclasses import dataclass

from bench.plant.networks.ops import Layer, Network, Op, Phase, elementwise, view


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a decoder.

    Attributes:
        name: Model name.
        layers: Decoder blocks.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Heads of keys and values.
        head: Width of one head.
        ffn: Width of the feed-forward part.
        vocab: Entries of the vocabulary.
        max_context: Longest context it was published for, tokens.
        gpt: GPT-2 style block (layer norm, biases, GELU, learned positions), else Llama style.
        tied: Whether the output matrix is the embedding.
        qkv_bias: Whether a Llama style block has biases at query, key and value.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    vocab: int
    max_context: int
    gpt: bool = False
    tied: bool = False
    qkv_bias: bool = False


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("gpt2-large", 36, 1280, 20, 20, 64, 5120, 50257, 1024, gpt=True, tied=True),
        Shape("qwen2-1.5b", 28, 1536, 12, 2, 128, 8960, 151936, 32768, tied=True, qkv_bias=True),
        Shape("qwen2-7b", 28, 3584, 28, 4, 128, 18944, 152064, 32768, qkv_bias=True),
        Shape("qwen2.5-3b", 36, 2048, 16, 2, 128, 11008, 151936, 32768, tied=True, qkv_bias=True),
        Shape("qwen3-4b", 36, 2560, 32, 8, 128, 9728, 151936, 32768, tied=True),
        Shape("llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072),
        Shape("qwen2.5-14b", 48, 5120, 40, 8, 128, 13824, 152064, 131072, qkv_bias=True),
    )
}


@dataclass(frozen=True, slots=True)
class _Pass:
    """Makes ops for one pass: over one token (decode) or all tokens of the context (prefill)."""

    prefill: bool

    def linear(self, inp: int, out: int, *, bias: bool) -> Op:
        weights = inp * out + (out if bias else 0)
        if self.prefill:
            return Op(
                "linear", weights=weights, ctx_macs=inp * out, ctx_acts=inp + out, ctx_out=out
            )
        return Op(
            "linear", macs=float(inp * out), weights=weights, acts=inp + out, out=out, kernels=2
        )

    def each(self, kind: str, width: int, reads: int = 1, weights: int = 0) -> Op:
        """Elementwise over the tokens of the pass."""
        if not self.prefill:
            op = elementwise(kind, width, reads)
            return Op(op.kind, op.macs, weights, op.acts, op.out, fusable=True)
        moved = (reads + 1) * width
        return Op(
            kind, weights=weights, ctx_macs=width, ctx_acts=moved, ctx_out=width, fusable=True
        )

    def cache(self, kv_width: int) -> Op:
        """Append to the cache: eager concatenation copies all of it."""
        return Op("kv_cat", acts=2 * kv_width, ctx_acts=2 * kv_width, out=kv_width, fusable=True)

    def attend(self, kind: str, q_width: int, kv_width: int, heads: int) -> Op:
        """One of the two products of attention: queries with keys, or scores with values."""
        if self.prefill:
            return Op(
                kind,
                ctx_acts=q_width + kv_width,
                ctx_out=q_width,
                ctx2_macs=q_width / 2,
                ctx2_acts=heads,
            )
        return Op(
            kind,
            macs=float(q_width),
            acts=2 * q_width,
            out=q_width,
            ctx_macs=q_width,
            ctx_acts=kv_width + heads,
            ctx_out=heads,
        )

    def scores(self, kind: str, heads: int) -> Op:
        """Elementwise over the attention scores."""
        if self.prefill:
            return Op(kind, ctx2_macs=heads, ctx2_acts=2 * heads, ctx_out=heads * 64, fusable=True)
        return Op(kind, acts=2 * heads, out=heads, ctx_macs=heads, ctx_acts=2 * heads, fusable=True)


def _views(count: int) -> list[Op]:
    return [view() for _ in range(count)]


def _gpt_block(s: Shape, p: _Pass) -> list[Op]:
    """GPT-2 block: layer norm, joint QKV, masked attention, GELU in its eight eager steps."""
    d = s.hidden
    ops = [p.each("layer_norm", d, weights=2 * d), *_views(2), p.linear(d, 3 * d, bias=True)]
    ops += [*_views(8), p.cache(d), p.cache(d), *_views(1), p.attend("qk", d, d, s.heads)]
    ops += [Op("fill", acts=1, out=1, fusable=True), p.scores("div", s.heads), *_views(2)]
    ops += [Op("fill", acts=1, out=1, fusable=True), p.scores("where", s.heads)]
    ops += [p.scores("softmax", s.heads), p.attend("av", d, d, s.heads), *_views(1)]
    ops += [p.each("copy", d), *_views(2), p.linear(d, d, bias=True), p.each("add", d, 2)]
    ops += [p.each("layer_norm", d, weights=2 * d), *_views(2), p.linear(d, s.ffn, bias=True)]
    ops += [p.each("gelu", s.ffn) for _ in range(8)]
    return [*ops, *_views(2), p.linear(s.ffn, d, bias=True), p.each("add", d, 2)]


def _rms_norm(p: _Pass, d: int) -> list[Op]:
    """RMS norm as eager issues it: cast, square, mean, add, rsqrt, mul, cast, mul."""
    small = [p.each("mean", 1), p.each("add_eps", 1), p.each("rsqrt", 1)]
    wide = [p.each("mul", d, 2), p.each("cast", d), p.each("mul", d, 2, weights=d)]
    return [p.each("cast", d), p.each("pow", d), *small, *wide]


def _rotary(p: _Pass, width: int) -> list[Op]:
    """Rotate half, for queries or keys: two slices, negate, concatenate, two products, one sum."""
    half = [*_views(2), p.each("neg", width // 2), p.each("cat", width)]
    return [*half, p.each("mul", width, 2), p.each("mul", width, 2), p.each("add", width, 2)]


def _llama_block(s: Shape, p: _Pass) -> list[Op]:
    """Llama style block with grouped keys and values, which eager repeats before attention."""
    d, q, kv = s.hidden, s.heads * s.head, s.kv_heads * s.head
    ops = _rms_norm(p, d)
    ops += [p.linear(d, q, bias=s.qkv_bias), *_views(2), p.linear(d, kv, bias=s.qkv_bias)]
    ops += [*_views(2), p.linear(d, kv, bias=s.qkv_bias), *_views(2), *_views(4)]
    ops += [*_rotary(p, q), *_rotary(p, kv), p.cache(kv), p.cache(kv)]
    repeat = Op("repeat_kv", acts=2 * q, out=q, ctx_acts=kv + q, ctx_out=q, fusable=True)
    ops += [*_views(2), repeat, *_views(2), repeat, *_views(1)]
    ops += [p.attend("qk", q, kv, s.heads), p.scores("mul", s.heads), *_views(1)]
    ops += [p.scores("mask", s.heads), p.scores("softmax", s.heads), p.scores("cast", s.heads)]
    ops += [p.attend("av", q, kv, s.heads), *_views(1), p.each("copy", q), *_views(1)]
    ops += [p.linear(q, d, bias=False), p.each("add", d, 2), *_rms_norm(p, d)]
    ops += [p.linear(d, s.ffn, bias=False), p.each("silu", s.ffn), p.linear(d, s.ffn, bias=False)]
    ops += [p.each("mul", s.ffn, 2), p.linear(s.ffn, d, bias=False), p.each("add", d, 2)]
    return ops


def _block(s: Shape, p: _Pass) -> Layer:
    ops = tuple(_gpt_block(s, p) if s.gpt else _llama_block(s, p))
    config = {
        "hidden": s.hidden,
        "heads": s.heads,
        "kv_heads": s.kv_heads,
        "ffn": s.ffn,
        "gpt": int(s.gpt),
        "prefill": int(p.prefill),
    }
    params = sum(op.weights for op in ops)
    return Layer("decoder", tuple(config.items()), ops, params, modules=8 if s.gpt else 12)


def _embedding(s: Shape, p: _Pass) -> Layer:
    """Token (and learned position) embedding, position ids and mask: mostly host work."""
    gather = [p.each("embedding", s.hidden) for _ in range(2 if s.gpt else 1)]
    ops = [*_views(10), *gather, *(p.each("mask", 1) for _ in range(8))]
    params = s.vocab * s.hidden + (s.max_context * s.hidden if s.gpt else 0)
    config = {"vocab": s.vocab, "hidden": s.hidden}
    return Layer("embedding", tuple(config.items()), tuple(ops), params, modules=3)


def _head(s: Shape, p: _Pass) -> Layer:
    """Last norm, output matrix for one position, choice of the token."""
    d = s.hidden
    one = _Pass(prefill=False)
    norm = [p.each("layer_norm", d, weights=2 * d)] if s.gpt else _rms_norm(p, d)
    pick = [one.each("cast", s.vocab), one.each("argmax", s.vocab)]
    pick += [one.each("bookkeeping", 1) for _ in range(8)]
    ops = (*norm, *_views(4), one.linear(d, s.vocab, bias=False), *pick)
    params = sum(op.weights for op in norm) + (0 if s.tied else s.vocab * d)
    config = {"vocab": s.vocab, "hidden": d}
    return Layer("head", tuple(config.items()), ops, params, modules=4)


def decoder(name: str, phase: Phase = "decode") -> Network:
    """Build the network of a language model.

    Args:
        name: Key of :data:`SHAPES`.
        phase: ``"decode"`` (one token) or ``"prefill"`` (context = prompt length).
    """
    shape, p = SHAPES[name], _Pass(prefill=phase == "prefill")
    layers = (_embedding(shape, p), *([_block(shape, p)] * shape.layers), _head(shape, p))
    suffix = ":prefill" if p.prefill else ""
    return Network(name + suffix, layers, phase, shape.max_context)
