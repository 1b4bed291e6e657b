"""The layer lists against what the networks' authors published."""

import numpy as np
import pytest

from bench.plant.errors import PlantError
from bench.plant.networks import NETWORKS, get_network
from bench.plant.workload import ENGINES, get_workload


@pytest.mark.parametrize(
    ("name", "params", "gmac"),
    [
        ("resnet50", 25.557e6, 4.09),
        ("vgg16", 138.358e6, 15.47),
        ("densenet121", 7.979e6, 2.83),
        ("mobilenetv2", 3.505e6, 0.30),
        ("yolov8n", 3.157e6, 4.37),
        ("alexnet", 61.101e6, 0.71),
        ("gpt2-large", 774.0e6, None),
        ("qwen2-1.5b", 1.544e9, None),
        ("qwen2-7b", 7.616e9, None),
        ("llama-8b", 8.030e9, None),
        ("qwen2.5-14b", 14.77e9, None),
    ],
)
def test_parameters_and_multiply_accumulates_are_the_published_ones(name, params, gmac):
    network = get_network(name)
    assert network.params == pytest.approx(params, rel=5e-4)
    if gmac is not None:
        assert network.macs / 1e9 == pytest.approx(gmac, abs=0.006)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_network_becomes_launches_under_every_engine(name):
    eager = get_workload(name, "flame-eager").program
    assert eager.kernels == get_network(name).kernels
    for engine in ENGINES:
        program = get_workload(name, engine).program
        assert 0 < program.kernels <= eager.kernels
        assert (np.diff(program.layer) >= 0).all()
        assert (program.host_kcycles > 0).all()


def test_decoding_reads_more_with_context_and_prefill_grows_with_its_square():
    decode = get_workload("qwen2-7b").program
    assert decode.act_bytes[1].sum() > 0
    assert decode.flops[2].sum() == 0
    prefill = get_workload("qwen2-7b:prefill").program
    assert prefill.flops[2].sum() > 0
    # two operations per parameter and token, but for the embedding and the last position's matrix
    assert prefill.flops[1].sum() == pytest.approx(2 * 6.53e9, rel=0.01)


def test_cache_of_gpt2_large_has_the_published_size():
    program = get_workload("gpt2-large", "fused", precision="fp16").program
    # attention reads keys and values once each: 2 x 36 layers x 1280 x 2 bytes
    reads = 2 * 36 * 1280 * 2
    assert program.act_bytes[1].sum() == pytest.approx(reads, rel=0.02)


def test_a_batch_scales_work_but_not_weights():
    one, many = get_workload("resnet50").program, get_workload("resnet50", batch=8).program
    assert many.flops.sum() == pytest.approx(8 * one.flops.sum())
    assert many.weight_bytes.sum() == one.weight_bytes.sum()
    assert many.host_kcycles.sum() == one.host_kcycles.sum()


@pytest.mark.parametrize(
    "wrong", [("resnet51", "fused", ""), ("resnet50", "jax", ""), ("resnet50", "fused", "fp12")]
)
def test_unknown_names_are_refused_with_the_choice(wrong):
    name, engine, precision = wrong
    with pytest.raises(PlantError, match="choose from"):
        get_workload(name, engine, precision=precision)
