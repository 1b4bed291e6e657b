"""Worlds: ways in which a board departs from one launcher and one in-order stream.

An in-order stream behind a launcher *is* a max-plus recursion, so an estimator built on one agrees
with the plain world almost by construction. The other worlds are where estimators are compared.
"""

from dataclasses import dataclass

from bench.plant.errors import PlantError


@dataclass(frozen=True, slots=True)
class World:
    """What is different from the plain board.

    Attributes:
        name: Key of :data:`WORLDS`.
        queue: Launches that may wait for the GPU.
        sync_every: Layers after which the host waits for the GPU each time; 0 for never.
        second_stream: Whether every fourth layer runs on a second stream.
        isolated_cpu: Host cost of a layer run alone relative to the same layer in the network.
        isolated_gpu: The same for GPU time.
        profiler_us: Time a profiler adds to each kernel of a layer run alone, us.
        emc_governed: Whether the memory clock follows traffic instead of the request.
        host_slowdown: Factor on host costs (other work on the cores).
        host_jitter: Relative deviation of single launches, where it is above the engine's own.
        inversion: Slowdown of cache-resident kernels at the top GPU clock.
        background_fps: Rate of a MobileNet that shares stream and cores, jobs per second.
        traffic_share: Share of memory bandwidth taken by others.
    """

    name: str = "plain"
    queue: int = 1024
    sync_every: int = 0
    second_stream: bool = False
    isolated_cpu: float = 1.0
    isolated_gpu: float = 1.0
    profiler_us: float = 0.0
    emc_governed: bool = False
    host_slowdown: float = 1.0
    host_jitter: float = 0.0
    inversion: float = 0.0
    background_fps: float = 0.0
    traffic_share: float = 0.0


PLAIN = World()

WORLDS = {
    world.name: world
    for world in (
        PLAIN,
        World("host-sync", sync_every=8),
        World("queue16", queue=16),
        World("two-streams", second_stream=True),
        World("isolated-bias", isolated_cpu=1.08, isolated_gpu=1.03, profiler_us=3.0),
        World("governed-emc", emc_governed=True),
        World("cpu-contention", host_slowdown=1.3, host_jitter=0.3),
        World("l2-inversion", inversion=0.08),
        World("background", background_fps=30.0, host_slowdown=1.08),
        World("memory-traffic", traffic_share=0.35),
    )
}


def get_world(name: str) -> World:
    """Return a world by name.

    Raises:
        PlantError: There is no such world.
    """
    try:
        return WORLDS[name]
    except KeyError:
        raise PlantError(
            f"unknown world {name!r}", hint=f"choose from {', '.join(WORLDS)}"
        ) from None
