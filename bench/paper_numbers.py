"""What the FLAME paper (arXiv 2604.15357) reports, to stand beside our figures."""

PPW_OVER_ZTT_PCT = {"dnn": 23.69, "slm": 23.26, "mean": 23.48}
PPW_OVER_MAX_PCT = {"slm": 40.39}
PPW_OVER_COM_PCT = {"slm": 7.61}
QOS_OVER_ZTT_PCT = 4.35
"""Section I and section VI-B."""

COM_QOS_AT_50_PCT = {"vgg16": 77.93, "densenet121": 88.43}
"""Section VI-B: QoS of DVFS-Com at 50 FPS; the power mode is not stated."""

MAPE_PCT = {"maxplus": 8.14, "analytic": 24.82, "mlp": 26.93}
"""Section VI-B, means over six models: Lat-FLAME, Lat-Analytic, Lat-Learn."""

ABLATION_CUT_PCT = {
    "no_module": {"dnn": 65.33, "slm": 86.99},
    "no_aggregation": {"dnn": 51.04, "slm": 68.23},
}
"""Section VI-B: by how much the complete design lowers the error of each ablation."""

INTERVAL_MAPE_PCT = {
    "resnet50": {1: 5.79, 4: 6.97},
    "gpt2-large": {1: 3.65, 4: 3.87},
}
"""Section VI-C: error by sampling interval of the CPU clock."""

PROFILING_MIN = {
    "resnet50": (2, 43),
    "vgg16": (3, 54),
    "densenet121": (6, 102),
    "gpt2-large": (2, 113 * 60),
    "qwen2-1.5b": (2, 151 * 60),
    "qwen2-7b": (4, 304 * 60),
}
"""Tables I and II: minutes of sparse and of full profiling."""

ESTIMATE_MS = 3.32
OVERHEAD_W = 0.05
"""Section VI-D."""
