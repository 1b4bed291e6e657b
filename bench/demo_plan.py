"""What the demo's application does, and what it tells about each job; shared by its processes."""

from typing import NamedTuple

import msgspec

from estimators.table import Phase

RESNET50_JOBS = 100
GPT2_TOKENS = 8
"""Tokens per step: with both policies the demo stays below a minute."""

PROMPT_TOKENS = 64


class Step(msgspec.Struct, frozen=True):
    """Some jobs of one model under one deadline, released once per deadline.

    Attributes:
        model: Name of the workload and of its table.
        phase: Part of the work that one job is.
        deadline_us: Time allowed for each job, us.
        jobs: How many.
        context: Tokens in the context of the first job; grows by one per job if above 0.
    """

    model: str
    phase: Phase
    deadline_us: int
    jobs: int
    context: int = 0

    def context_of(self, job: int) -> int:
        """Tell the context length of a job of this step."""
        return self.context + job if self.context else 0


class JobRecord(msgspec.Struct, frozen=True, tag="job"):
    """One job, as the application saw it.

    Attributes:
        step: Index of its step.
        start_ns: CLOCK_MONOTONIC at its start.
        latency_us: Time from start to end.
        cpu_hz: CPU clock in force when it ended.
        gpu_hz: GPU clock in force when it ended.
    """

    step: int
    start_ns: int
    latency_us: float
    cpu_hz: int
    gpu_hz: int


class StepRecord(msgspec.Struct, frozen=True, tag="step"):
    """Time and true energy from the first release of a step to the end of its last period.

    Attributes:
        step: Index of the step.
        start_ns: CLOCK_MONOTONIC at the first release.
        end_ns: CLOCK_MONOTONIC at the end of the last period.
        energy_mj: True energy of the board in between, idle time included.
        temp_c: Temperature of the hottest zone at the end.
    """

    step: int
    start_ns: int
    end_ns: int
    energy_mj: float
    temp_c: float


class Farewell(msgspec.Struct, frozen=True, tag="end"):
    """Last word of the application.

    Attributes:
        dropped: Messages that the daemon did not get.
    """

    dropped: int


Record = JobRecord | StepRecord | Farewell


class PowerSample(NamedTuple):
    """True mean power of the board since the sample before; times of CLOCK_MONOTONIC."""

    since_ns: int
    until_ns: int
    power_w: float


class RunRecord(msgspec.Struct, frozen=True):
    """All that happened under one policy.

    Attributes:
        policy: Name of the policy.
        jobs: Jobs in order.
        steps: Steps in order.
        power: Power over time.
        dropped: Messages of the application that the daemon did not get.
    """

    policy: str
    jobs: list[JobRecord]
    steps: list[StepRecord]
    power: list[PowerSample]
    dropped: int = 0


class Order(msgspec.Struct, frozen=True):
    """What the application process is told on its standard input.

    Attributes:
        address: The daemon's endpoint.
        board: Socket of the simulated board.
        steps: What to do.
    """

    address: str
    board: str
    steps: list[Step]


def paper_steps() -> list[Step]:
    """Tighten deadlines as in Fig. 20a of the FLAME paper: ResNet50, then tokens of GPT2-large."""
    images = [Step("resnet50", "inference", d * 1000, RESNET50_JOBS) for d in (20, 18, 16, 14, 12)]
    tokens = [
        Step("gpt2-large", "decode", d * 1000, GPT2_TOKENS, PROMPT_TOKENS + i * GPT2_TOKENS)
        for i, d in enumerate((200, 180, 160, 140, 120))
    ]
    return images + tokens
