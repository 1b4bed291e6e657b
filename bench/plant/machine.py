"""A board in motion, in explicit time: clocks that follow requests, jobs, heat, kernel governors.

The caller owns the time: the live process passes CLOCK_MONOTONIC, a bench or a test any count of
nanoseconds. Nothing here sleeps or touches a file.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bench.plant.engine import Engine
from bench.plant.errors import PlantError
from bench.plant.governing import CpuGoverning, GpuGoverning
from bench.plant.heat import Heat
from bench.plant.kfile import ClockDevice, Device, locate
from bench.plant.meter import Meter
from bench.plant.power import PowerModel
from bench.plant.progress import JobRequest, JobResult, Progress
from bench.plant.tree import BoardFiles
from bench.plant.types import Clocks, Rails
from bench.plant.workload import get_workload
from bench.plant.worlds import get_world

Done = Callable[[JobResult], None]

_CPU_DELAY_MS = (1.0, 1.7, 1.25)
_GPU_DELAY_MS = (4.6, 6.2, 5.0)
_EMC_DELAY_MS = (7.4, 9.7, 8.0)
"""Shortest, longest and most frequent time from a request to its effect (measured, Orin Nano)."""
_MS = 1_000_000
_CAP_ACTOR = "other"


class _Waiting(NamedTuple):
    request: JobRequest
    received_ns: int
    done: Done


class _Change(NamedTuple):
    due_ns: int
    value: int


class Machine:
    """One board.

    Args:
        files: What it shows.
        world: How it departs from the plain model.
        seed: Seed of all randomness.
        now_ns: Time of the start.
        lag_ns: How late the owner sees a write and shows its effect; taken off every delay.

    Raises:
        PlantError: The board is one of sensors and paths only, or there is no such world.

    Attributes:
        touched: Devices whose files have changed since the owner last looked; the owner clears it.
    """

    def __init__(
        self,
        files: BoardFiles,
        *,
        world: str = "plain",
        seed: int = 0,
        now_ns: int = 0,
        lag_ns: int = 0,
    ) -> None:
        self.files, self.kernel = files, files.kernel
        if not self.kernel.policies:
            raise PlantError(
                "this board has no known clocks",
                where=self.kernel.board.name,
                hint="only its tree can be built",
            )
        self._world, self._seed = get_world(world), seed
        self._random = random.Random(seed)
        self._engines: dict[tuple[object, ...], Engine] = {}
        self._idle_rails: dict[tuple[Clocks, int], Rails] = {}
        self._power = PowerModel(self.kernel.board)
        idle = self._power.rails(self.clocks)
        self._heat = Heat(self.kernel.board, files.zones, idle.power_mw)
        self.meter = Meter(files, now_ns)
        self._cpu, self._gpu = CpuGoverning(self.kernel), GpuGoverning(self.kernel)
        self._changes: dict[ClockDevice, _Change] = {}
        self._queue: deque[_Waiting] = deque()
        self._job: tuple[_Waiting, Progress] | None = None
        self._now_ns, self._lag_ns = now_ns, lag_ns
        self.touched: set[Device] = set()
        self._governors = self._governor_names()
        self._rails: Rails | None = None
        self._kick(now_ns)

    # -- what is -------------------------------------------------------------------------------

    @property
    def clocks(self) -> Clocks:
        """Clocks in force for the launching core, the GPU and memory."""
        kernel = self.kernel
        cpu = kernel.policies[0]
        cpu_khz = min(cpu.cur_khz, cpu.hardware_cap_khz or cpu.cur_khz)
        gpu_hz = min(kernel.gpu.cur_hz, kernel.gpu.hardware_cap_hz or kernel.gpu.cur_hz)
        return Clocks(cpu_khz * 1000, gpu_hz, kernel.emc.cur_hz if kernel.emc else 0)

    @property
    def rails(self) -> Rails:
        """True power of this moment; asking early spares the time when it is needed."""
        if self._rails is None:
            self._rails = self._power_now()
        return self._rails

    @property
    def jobs(self) -> int:
        """Jobs that run or wait."""
        return len(self._queue) + (self._job is not None)

    @property
    def temp_mc(self) -> dict[str, int]:
        """Temperature of each zone, millidegrees Celsius, by its type."""
        return self.files.zones.temp_mc

    def due_ns(self, device: Device) -> int:
        """Tell when the clock of a device that was just written will be in force."""
        change = next((c for d, c in self._changes.items() if d is device), None)
        return change.due_ns if change else self._now_ns

    @property
    def next_ns(self) -> int:
        """When something happens next."""
        return min(when for when, _ in self._agenda())

    # -- what happens --------------------------------------------------------------------------

    def write(self, device: Device, name: str, data: bytes, now_ns: int) -> None:
        """Take a write to one of the board's files.

        Raises:
            KernelError: The kernel refuses it; nothing has changed.
        """
        self.advance(now_ns)
        try:
            device.write(name, data)
        finally:
            self._touch(device)
            self.noticed(now_ns)

    def write_path(self, path: str, data: bytes, now_ns: int) -> None:
        """Take a write to a path below the root.

        Raises:
            KernelError: There is no such file, or the kernel refuses.
        """
        device, name = locate(self.files.devices, path)
        self.write(device, name, data, now_ns)

    def cap(self, cpu_hz: int, gpu_hz: int, now_ns: int) -> None:
        """Limit clocks as another requester than the user does, Hz; 0 lifts the limit."""
        self.advance(now_ns)
        kernel = self.kernel
        for policy in kernel.policies:
            policy.request_max(_CAP_ACTOR, cpu_hz // 1000 if cpu_hz else policy.table[-1])
        kernel.gpu.request_max(_CAP_ACTOR, gpu_hz)
        self.touched.update(kernel.devices)
        self.noticed(now_ns)

    def set_mode(self, name: str, now_ns: int) -> None:
        """Do what ``nvpmodel -m`` does.

        Raises:
            PlantError: The board has no such mode.
        """
        self.advance(now_ns)
        self.kernel.set_mode(self.kernel.board.mode(name))
        self.touched.update(self.files.devices)
        self.noticed(now_ns)

    def break_hardware(
        self, domain: str, driver_errno: int, hardware_cap_hz: int, now_ns: int
    ) -> None:
        """Make the driver of a clock fail, or throttle it behind the kernel's back.

        Raises:
            PlantError: The domain is neither ``"cpu"`` nor ``"gpu"``.
        """
        self.catch_up(now_ns)
        kernel = self.kernel
        if domain == "cpu":
            for policy in kernel.policies:
                policy.driver_errno, policy.hardware_cap_khz = driver_errno, hardware_cap_hz // 1000
        elif domain == "gpu":
            kernel.gpu.driver_errno, kernel.gpu.hardware_cap_hz = driver_errno, hardware_cap_hz
        else:
            raise PlantError(f"unknown domain {domain!r}", hint="choose cpu or gpu")
        self.touched.update(kernel.devices)
        self._speed_changed(now_ns)

    def set_heat(self, chip_c: float, now_ns: int) -> None:
        """Set the chip's temperature, degrees Celsius."""
        self.catch_up(now_ns)
        self._heat.set(chip_c)
        self.touched.add(self.files.zones)
        self._speed_changed(now_ns)

    def submit(self, request: JobRequest, now_ns: int, done: Done) -> None:
        """Run a job after those that were submitted before; ``done`` is told its result.

        Raises:
            PlantError: There is no such workload or engine, or no such batch or context.
        """
        if request.batch < 1 or request.context < 0:
            raise PlantError(
                "impossible job", why=f"batch {request.batch}, context {request.context}"
            )
        self.catch_up(now_ns)
        self._engine(request)
        self._queue.append(_Waiting(request, now_ns, done))
        self._start_next(now_ns)

    def withdraw(self, done: Done) -> None:
        """Forget the waiting jobs of somebody who went away; a running one ends untold."""
        self._queue = deque(job for job in self._queue if job.done != done)

    def advance(self, now_ns: int) -> None:
        """Let everything happen that is due until now, in order and at its own time."""
        while True:
            when, event = min(self._agenda(), key=lambda entry: entry[0])
            if when > now_ns:
                break
            self._pass_to(when)
            event(when)

    def catch_up(self, now_ns: int) -> None:
        """Advance and count energy and load until now, which costs the power model a call."""
        self.advance(now_ns)
        self._pass_to(now_ns)

    def noticed(self, now_ns: int) -> None:
        """Look at the clock files after a change: start clocks moving, wake governors."""
        for clock in self._clocks():
            if clock.moving and clock not in self._changes:
                due_ns = now_ns + self._delay_ns(clock)
                self._changes[clock] = _Change(due_ns, clock.asked)
                self.touched.add(clock)
        names = self._governor_names()
        if names != self._governors:
            self._governors = names
            self.touched.add(self.kernel.schedutil)
            self._kick(now_ns)

    # -- inside --------------------------------------------------------------------------------

    def _agenda(self) -> list[tuple[int, Callable[[int], None]]]:
        agenda: list[tuple[int, Callable[[int], None]]] = [(self.meter.due_ns, self._sense)]
        if self._changes:
            agenda.append((min(change.due_ns for change in self._changes.values()), self._settle))
        if self._job:
            agenda.append((self._job[1].end_ns, self._finish))
        if self._cpu.due_ns is not None:
            agenda.append((self._cpu.due_ns, self._tick))
        if self._gpu.due_ns is not None:
            agenda.append((self._gpu.due_ns, self._poll))
        return agenda

    def _pass_to(self, when_ns: int) -> None:
        ns = when_ns - self._now_ns
        if ns <= 0:
            return
        cpu_busy = gpu_busy = 0.0
        if self._job:
            activity = self._job[1].activity
            cpu_busy = min(activity.cpu_busy_us / activity.latency_us, 1.0)
            gpu_busy = min(activity.gpu_busy_us / activity.latency_us, 1.0)
        self._cpu.spend(ns, cpu_busy)
        self._gpu.spend(ns, gpu_busy)
        self.meter.add(self.rails, ns)
        self._now_ns = when_ns

    def _settle(self, when_ns: int) -> None:
        for clock, change in list(self._changes.items()):
            if change.due_ns <= when_ns:
                del self._changes[clock]
                clock.settle(change.value)
                self.touched.add(clock)
        self._speed_changed(when_ns)
        self.noticed(when_ns)

    def _speed_changed(self, now_ns: int) -> None:
        if self._job:
            self._job[1].change(self.clocks, now_ns)
        self._rails = None

    def _finish(self, when_ns: int) -> None:
        assert self._job is not None  # only then it is on the agenda
        waiting, progress = self._job
        self._job = None
        waiting.done(
            JobResult(
                start_ns=waiting.received_ns,
                end_ns=when_ns,
                latency_us=(when_ns - waiting.received_ns) / 1000,
                start=progress.start,
                end=progress.clocks,
                switched=progress.switched,
            )
        )
        self._rails = None
        self._start_next(when_ns)
        if not self._job:
            self._kick(when_ns)

    def _start_next(self, now_ns: int) -> None:
        if self._job or not self._queue:
            return
        waiting = self._queue.popleft()
        engine = self._engine(waiting.request)
        progress = Progress.begin(engine, waiting.request.context, self.clocks, now_ns)
        self._job = waiting, progress
        self._rails = None
        self._kick(now_ns)

    def _kick(self, now_ns: int) -> None:
        """Let the governors look: work came or went, or one of them was just chosen."""
        self._cpu.update(now_ns, working=self._job is not None)
        self._gpu.wake(now_ns)
        self._governed(now_ns)

    def _tick(self, when_ns: int) -> None:
        self._cpu.update(when_ns, working=self._job is not None)
        self._governed(when_ns)

    def _poll(self, when_ns: int) -> None:
        self._gpu.poll(when_ns, working=self._job is not None)
        self.touched.add(self.kernel.gpu)
        self._governed(when_ns)

    def _governed(self, now_ns: int) -> None:
        if any(clock.moving and clock not in self._changes for clock in self._clocks()):
            self.noticed(now_ns)

    def _sense(self, when_ns: int) -> None:
        began_ns = self.meter.due_ns - self.files.monitors[0].interval_ms * _MS
        power_mw = self.meter.show(when_ns)
        self._heat.step(power_mw, (when_ns - began_ns) / 1e9)
        self.touched.update((*self.files.monitors, self.files.zones))
        self._rails = None
        if self._heat.throttle(self.kernel):
            self.touched.update(self.kernel.devices)
            self.noticed(when_ns)

    def _power_now(self) -> Rails:
        if self._job:
            activity = self._job[1].activity
            temp_c = self._heat.chip_c
            return self._power.rails(self.clocks, activity, activity.latency_us, temp_c)
        idle = self.clocks, round(self._heat.chip_c)  # a degree more leaks 2 % more
        if idle not in self._idle_rails:
            self._idle_rails[idle] = self._power.rails(idle[0], temp_c=float(idle[1]))
        return self._idle_rails[idle]

    def _engine(self, request: JobRequest) -> Engine:
        key = request[:-1]
        if key not in self._engines:
            workload = get_workload(
                request.workload,
                request.engine,
                precision=request.precision,
                batch=request.batch,
            )
            seed = self._seed + len(self._engines)
            self._engines[key] = Engine(self.kernel.board, workload, world=self._world, seed=seed)
        return self._engines[key]

    def _touch(self, device: Device) -> None:
        """Mark a written device, and the clocks that it may have changed behind the scenes."""
        self.touched.add(device)
        if device not in self._clocks():
            self.touched.update(self.kernel.devices)

    def _clocks(self) -> list[ClockDevice]:
        kernel = self.kernel
        clocks: list[ClockDevice] = [*kernel.policies, kernel.gpu]
        if kernel.emc:
            clocks.append(kernel.emc)
        return clocks

    def _delay_ns(self, clock: ClockDevice) -> int:
        spread = _CPU_DELAY_MS
        if clock is self.kernel.gpu:
            spread = _GPU_DELAY_MS
        elif clock is self.kernel.emc:
            spread = _EMC_DELAY_MS
        return max(int(self._random.triangular(*spread) * _MS) - self._lag_ns, 0)

    def _governor_names(self) -> tuple[str, ...]:
        return (*(policy.governor for policy in self.kernel.policies), self.kernel.gpu.governor)
