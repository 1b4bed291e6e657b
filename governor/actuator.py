"""Writes clocks without ever making the select loop wait.

A CPU write blocks 1.4 ms and a GPU write 5 ms on an Orin, so each clock node has a thread of its
own that always writes the newest target and skips the ones that were overtaken. One more thread,
the keeper, does what is slower still: take the board over, give it back, read sensors and limits.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Literal

from estimators.errors import FlamegovError
from governor.boards import Board, BoardState, ClockNode, RestoreReport
from governor.journal import Journal
from policies.base import OperatingPoint

log = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 3.0
WRITER_NICE = 5

QUICK_NS = 400_000
"""A write that takes less does not block: a CPU write on an Orin takes 1.4 ms."""

Command = Literal["acquire", "release", "poll", "stop"]


class Writer(threading.Thread):
    """Owns one clock node: whoever writes it holds its gate.

    Attributes:
        target_hz: Newest wish; 0 before the first.
        effective_hz: Clock read back after the last write; 0 before the first.
        busy: Whether a write is under way.
        last_ns: CLOCK_MONOTONIC at the end of the last write.
        writes: Writes made.
        errors: Writes that failed.
    """

    def __init__(self, node: ClockNode) -> None:
        super().__init__(name=f"write-{node.name}", daemon=True)
        self.node = node
        self._wake: SimpleQueue[Sequence[Writer] | None] = SimpleQueue()
        self._quick = False
        self.gate = threading.Lock()
        self.target_hz = self.effective_hz = self._done_hz = 0
        self.busy = False
        self.last_ns = self.writes = self.errors = 0
        self.error = ""

    def request(self, hz: int) -> bool:
        """Note the newest wish; :meth:`wake` sets the thread to work. Tell whether it is new."""
        new = hz != self.target_hz or bool(self.error)
        self.target_hz = hz
        return new

    def wake(self, rest: "Sequence[Writer]" = ()) -> None:
        """Set the thread to work on the newest wish, and others after it; returns at once."""
        self._wake.put(rest)

    def forget(self) -> None:
        """Drop what was asked of the node: it was given back or changed by somebody else."""
        self.target_hz = self._done_hz = 0

    def stop(self) -> bool:
        """End the thread; False if a write is stuck in the kernel."""
        self._wake.put(None)
        self.join(JOIN_TIMEOUT_S)
        return not self.is_alive()

    def run(self) -> None:
        """Write targets until told to stop."""
        # An answer must not wait for a write, which takes milliseconds anyway.
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(19, nice + WRITER_NICE))
        while (rest := self._wake.get()) is not None:
            # A write that blocks must let the next one run beside it. Where writes return at once,
            # to wake a thread for each costs more than all the writes.
            if rest and not self._quick:
                rest[0].wake(rest[1:])
                rest = ()
            self._serve()
            for at, other in enumerate(rest):
                if not other._quick:
                    other.wake(rest[at + 1 :])
                    break
                other._serve()

    def _serve(self) -> None:
        with self.gate:
            self._write(self.target_hz)

    def _write(self, hz: int) -> None:
        if not hz or hz == self._done_hz:
            return
        self.busy = True
        began_ns = time.monotonic_ns()
        try:
            self.effective_hz = self.node.set_hz(hz)
            self._done_hz, self.error = hz, ""
            self.writes += 1
        except FlamegovError as error:
            self.errors += 1
            self._done_hz = 0
            if not self.error:
                log.warning("%s", error)
            self.error = str(error)
        except Exception as error:
            # Nobody watches a thread die: it must live on, and the fault must show in status.
            log.exception("%s: a write failed", self.node.name)
            self.errors += 1
            self._done_hz, self.error = 0, f"{self.node.name}: {type(error).__name__}: {error}"
        finally:
            self.last_ns = time.monotonic_ns()
            self._quick = self.last_ns - began_ns < QUICK_NS
            self.busy = False


def log_report(report: RestoreReport) -> None:
    """Log what a restore did: what was put back, kept for its owner, or left for later."""
    for line in report.restored:
        log.info("restored %s", line)
    for line in report.kept:
        log.warning("kept, another writer owns it now: %s", line)
    for line in report.left:
        log.error("not restored yet: %s", line)
    for line in report.notes:
        log.warning("%s", line)


def _slowest(writers: list[Writer], seen_hz: int) -> int:
    """Tell the lowest clock written; one that could not be written has what the board showed."""
    slowest = 0
    for writer in writers:
        hz = writer.effective_hz or seen_hz
        if not slowest or hz < slowest:
            slowest = hz
    return slowest


class Actuator:
    """Hands operating points to the writers and keeps the board's state fresh.

    Args:
        board: The board to drive.
        journal: Where the originals are noted before the first write; None in a dry run.
        poll_ms: Period of reading sensors and limits, ms.

    Attributes:
        state: Newest state of the board; replaced as a whole.
        wake_fd: Readable when there is news: select on it, then call :meth:`take_news`.
        held: Whether the board is ours.
        error: Why the board could not be taken; empty if all is well.
        report: What the last restore did.
    """

    def __init__(self, board: Board, journal: Journal | None, *, poll_ms: int) -> None:
        self.board, self._journal = board, journal
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._set_writers([Writer(node) for node in board.nodes])
        self.held = False
        self.error = ""
        self.report: RestoreReport | None = None
        self._point = OperatingPoint(0, 0)
        self._poll_s = poll_ms / 1000
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._asked = False
        self._unsent = False
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self.state: BoardState = board.poll()

    def _set_writers(self, writers: list[Writer]) -> None:
        self.writers = writers
        self._cpu = [writer for writer in writers if writer.node.domain == "cpu"]
        self._gpu = [writer for writer in writers if writer.node.domain == "gpu"]

    def start(self) -> None:
        """Start the threads; nothing is written yet."""
        for writer in self.writers:
            writer.start()
        self._keeper.start()

    def set_point(self, point: OperatingPoint) -> None:
        """Note the newest point; :meth:`flush` sets the writers to work on it."""
        self._point = point
        self._unsent = True

    def flush(self) -> None:
        """Wake the writers that have a new wish, increases first.

        Apart from :meth:`set_point`, so that the loop can answer its clients first: a woken writer
        takes the interpreter lock, and the answer would wait for it.
        """
        if not self._unsent:
            return
        self._unsent = False
        if self.held and self._asked:
            self._send(self._point)
        elif not self._asked:
            # Not ours, or a release is under way: the keeper takes it (again) and sends the point.
            self._asked = True
            self._commands.put("acquire")

    def release(self) -> None:
        """Ask for the board to be given back."""
        self._asked = self._unsent = False  # nor may a wish of a moment ago take it again
        self._commands.put("release")

    def take_news(self) -> None:
        """Clear ``wake_fd`` after it became readable."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)

    def point(self) -> OperatingPoint:
        """Tell the clocks last read back; the slowest cluster counts for the CPU."""
        seen = self.state.point or OperatingPoint(0, 0)
        if not self.held:
            return seen
        return OperatingPoint(
            _slowest(self._cpu, seen.cpu_hz) if self._cpu else 0,
            _slowest(self._gpu, seen.gpu_hz) if self._gpu else 0,
        )

    def moved_since(self, start_ns: int) -> bool:
        """Tell whether a clock moved, or was about to, at or after a moment."""
        return any(writer.last_ns >= start_ns or writer.busy for writer in self.writers)

    @property
    def owed(self) -> tuple[str, ...]:
        """What could not be given back yet, one line each; it is tried at each poll."""
        return () if self.held or self.report is None else self.report.left

    @property
    def alive(self) -> bool:
        """Whether :meth:`close` has not been called yet."""
        return self._keeper.is_alive()

    def close(self, *, restore: bool) -> bool:
        """Join the threads, then give the board back.

        Returns:
            Whether all went well; False if a writer is stuck or a value could not be restored.
        """
        self._commands.put("stop")
        self._keeper.join(JOIN_TIMEOUT_S)
        joined = [writer.stop() for writer in self.writers]
        if self._keeper.is_alive() or not all(joined):
            log.error("a write is stuck in the kernel; run: flamegov restore")
            return False
        if restore and (self.held or self.owed):
            self._give_back()
        os.close(self.wake_fd)
        return self.report is None or self.report.complete

    def _send(self, point: OperatingPoint) -> None:
        wishes = [
            (w, point.cpu_hz if w.node.domain == "cpu" else point.gpu_hz) for w in self.writers
        ]
        # Increases first; and the GPU before the CPU, because its writes take longest.
        wishes.sort(key=lambda wish: (wish[1] <= wish[0].target_hz, wish[0].node.domain == "cpu"))
        due = [writer for writer, hz in wishes if hz and writer.request(hz)]
        if due:
            due[0].wake(due[1:])

    def _signal(self) -> None:
        os.eventfd_write(self.wake_fd, 1)

    def _keep(self) -> None:
        command: Command | None = "poll"
        while command != "stop":
            try:
                self._obey(command)
            except Exception as error:
                # Nobody watches a thread die: it must live on, and the fault must show in status.
                log.exception("the keeper failed")
                self.error = f"keeper: {type(error).__name__}: {error}"
            try:
                command = self._commands.get(timeout=self._poll_s)
            except Empty:
                command = None

    def _obey(self, command: Command | None) -> None:
        # A wish may have overtaken a release, and a refused board is asked again each time.
        if self._asked and (command == "acquire" or not self.held):
            self._take_over()
        elif not self._asked and (self.held or self.owed):
            self._give_back()
        self._refresh()

    def _take_over(self) -> None:
        if not self.held:
            try:
                self.board.acquire(self._journal)
            except FlamegovError as error:
                if self.error != str(error):
                    log.error("cannot take the board over: %s", error)
                self.error = str(error)
                return
            self.held, self.error = True, ""
        self._send(self._point)

    def _give_back(self) -> None:
        owed, self.held = self.owed, False
        gates = [w.gate for w in self.writers if w.gate.acquire(timeout=JOIN_TIMEOUT_S)]
        try:
            if len(gates) < len(self.writers):
                self.error = "a write is stuck in the kernel; run: flamegov restore"
                log.error("%s", self.error)
                return
            for writer in self.writers:
                writer.forget()
                writer.effective_hz = 0
            report = self.board.release()
            if not owed or report.left != owed:  # else it was told before
                log_report(report)
            self.report = report
        finally:
            for gate in gates:
                gate.release()

    def _refresh(self) -> None:
        try:
            self.state = self.board.poll()
        except FlamegovError as error:
            log.warning("%s", error)
            return
        for event in self.state.events:
            log.warning("%s", event.text)
        self._adopt()
        if self.held:
            self._correct({event.node for event in self.state.events})
        self._signal()

    def _adopt(self) -> None:
        """Give a clock that appeared late (a GPU powered for the first time) its writer."""
        known = {writer.node for writer in self.writers}
        for node in self.board.nodes:
            if node not in known:
                writer = Writer(node)
                writer.start()
                self._set_writers([*self.writers, writer])
                if self.held:
                    self._send(self._point)

    def _correct(self, touched: set[str]) -> None:
        """Write again what failed or fell short, and what somebody else has touched."""
        for writer in self.writers:
            target = writer.target_hz
            short = writer.effective_hz != target and not writer.busy
            if target and (writer.error or short or writer.node.name in touched):
                writer.forget()
                writer.request(target)
                writer.wake()
