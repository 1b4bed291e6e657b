"""The daemon, put together: lock, leftovers, tables, policy, board, threads, sockets, loop.

Order matters. The lock comes before anything is touched; what an earlier run left pinned is put
back before the board is looked at, so that our own pins are never taken for the operator's.
"""

import contextlib
import gc
import logging
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import zmq

from estimators.errors import FlamegovError, TableError
from estimators.table import LatencyTable
from estimators.tablestore import TableKey, TableStore
from governor.actuator import Actuator, log_report
from governor.admin import Admin
from governor.boards import Board, BoardOptions, OnWrite, RestoreReport, discover
from governor.config import Config, Loaded, configured_policy
from governor.controller import Controller
from governor.endpoint import Endpoint
from governor.errors import BoardError
from governor.journal import Journal, restore_from
from governor.lock import locked
from governor.notify import notify
from governor.server import Server
from governor.shadow import Shadow
from policies.registry import load_policy

log = logging.getLogger(__name__)

HINTS_MODE = 0o660
EXIT_STUCK = 4
OWN_DRIVER = "sysfs"
TRACE_WRITES = 8192


def open_board(config: Config, *, dry_run: bool, on_write: OnWrite | None = None) -> Board:
    """Find the board through the entry points ``flamegov.boards``.

    Raises:
        BoardError: No such driver, or no board there.
    """
    wanted = config.board
    make = discover if wanted.driver == OWN_DRIVER else _plugged_driver(wanted.driver)
    options = BoardOptions(gpu_mode=wanted.gpu_mode, lower_min=config.limits.lower_min)
    say = _log_write if dry_run else None
    board: Board = make(Path(wanted.root), options=options, dry_run=say, on_write=on_write)
    if not dry_run:
        check_writable(board, Path(wanted.root))
    return board


def _plugged_driver(name: str) -> Callable[..., Board]:
    from importlib.metadata import entry_points  # here, for a quick start

    found = {point.name: point for point in entry_points(group="flamegov.boards")}
    if name not in found:
        raise BoardError(f"no board driver '{name}'", hint=f"installed: {', '.join(sorted(found))}")
    driver: Callable[..., Board] = found[name].load()
    return driver


def check_writable(board: Board, root: Path) -> None:
    """Refuse a board none of whose clocks could be written.

    Raises:
        BoardError: We are not root, or its files are mounted read-only.
    """
    if not any(os.access(root / node.directory, os.W_OK) for node in board.nodes):
        why = "not root" if os.geteuid() else "mounted read-only"
        raise BoardError(
            "no clock of the board can be written",
            where=str(root / board.nodes[0].directory),
            why=why,
            hint="run as root with a writable /sys, or use: flamegov run --dry-run",
        )


def _log_write(path: Path, text: str) -> None:
    log.info("dry run: would write %s to %s", text, path)


def restore_leftovers(config: Config) -> RestoreReport:
    """Put back what an earlier run left behind; the lock must be held.

    Raises:
        JournalError: The journal cannot be used.
    """
    root = Path(config.board.root)
    report = restore_from(Journal.open(Path(config.state_dir), root), root)
    log_report(report)
    return report


class Daemon:
    """All parts of a running daemon.

    Args:
        load: Reads the configuration; called again on reload.
        dry_run: Writes are logged, not made.

    Raises:
        FlamegovError: Anything that a daemon cannot start without is missing or wrong.
    """

    def __init__(self, load: Callable[[], Loaded], *, dry_run: bool) -> None:
        self.loaded, self._load, self.dry_run = load(), load, dry_run
        loaded = self.loaded
        self.started_ns = time.monotonic_ns()
        self.policy_name = loaded.config.policy
        self._set_options: dict[str, Any] | None = None
        factory = configured_policy(loaded, self.policy_name)
        self.trace: deque[tuple[int, str]] = deque(maxlen=TRACE_WRITES)
        self.board = open_board(loaded.config, dry_run=dry_run, on_write=self._note_write)
        self.tables = self._read_tables(loaded.config)
        self.actuator = Actuator(
            self.board,
            None if dry_run else Journal.open(Path(loaded.config.state_dir), self._root),
            poll_ms=loaded.config.board.poll_ms,
        )
        self.controller = Controller(loaded.config, self.actuator, self.tables, factory)
        self.admin = Admin(self)
        self.clean = True

    @property
    def config(self) -> Config:
        """Configuration in force."""
        return self.loaded.config

    @property
    def _root(self) -> Path:
        return Path(self.config.board.root)

    def options_of(self, name: str) -> dict[str, Any]:
        """Tell the options of a policy: of the one in force as set at run time, else configured."""
        if name == self.policy_name and self._set_options is not None:
            return self._set_options
        return self._configured(name)

    def _configured(self, name: str) -> dict[str, Any]:
        return dict(self.config.policies.get(name, {}))

    def serve(self, signals_fd: int) -> None:
        """Bind, run the loop, give the board back; ``clean`` tells whether that went well.

        Args:
            signals_fd: Where the numbers of signals arrive; see :func:`signals`.

        Raises:
            ConfigError: A socket cannot be bound.
        """
        sockets, limit = self.config.sockets, self.config.limits.message_bytes
        with zmq.Context(io_threads=1) as context, contextlib.ExitStack() as stack:
            hints = Endpoint(context, sockets.hints, limit, group=sockets.group, mode=HINTS_MODE)
            stack.callback(hints.close)
            admin = Endpoint(context, sockets.admin, limit)
            stack.callback(admin.close)
            self.server = Server(
                hints,
                admin,
                self.controller,
                self.actuator,
                answer=self.admin,
                on_signal=self._on_signal,
            )
            self.actuator.start()
            log.info(
                "policy %s, %d tables, board %s, hints on %s%s",
                self.policy_name,
                len(self.tables),
                self.board.identity.model or "unknown",
                sockets.hints,
                ", dry run" if self.dry_run else "",
            )
            try:
                notify(READY=1, STATUS=f"policy {self.policy_name}, {len(self.tables)} tables")
                self.server.run(signals_fd)
            finally:
                notify(STOPPING=1)
                self.clean = self.actuator.close(restore=self.config.restore_on_exit)

    def errors(self) -> list[str]:
        """List what is wrong, one line each; empty if all is well."""
        lines = [*self.board.notes, *self.table_problems]
        if self.actuator.error:
            lines.append(self.actuator.error)
        shadow = self.controller.shadow
        lines += filter(None, (self.controller.guard.fault, shadow.guard.fault if shadow else ""))
        lines += [f"not given back yet: {line}" for line in self.actuator.owed]
        return lines + [writer.error for writer in self.actuator.writers if writer.error]

    def use_policy(self, name: str, options: dict[str, Any]) -> None:
        """Swap the policy without a gap in control.

        Args:
            name: Name of the policy.
            options: Set on top of the configured ones; those of earlier swaps are forgotten.

        Raises:
            PolicyError: It is unknown, broken, or an option is wrong; the old one stays.
        """
        chosen = self._configured(name) | options
        self.controller.set_policy(load_policy(name, chosen))
        self.policy_name, self._set_options = name, chosen
        log.info("policy %s is in force", name)

    def use_shadow(self, name: str | None, options: dict[str, Any]) -> None:
        """Let a second policy decide along without setting a clock; None ends that.

        Raises:
            PolicyError: It is unknown, broken, or an option is wrong; nothing changes.
        """
        if name is None:
            self.controller.shadow = None
            return
        factory = load_policy(name, self._configured(name) | options)
        self.controller.shadow = Shadow(name, factory)
        log.info("policy %s decides along", name)

    def reload(self) -> dict[str, Any]:
        """Read configuration and tables again; on any error the old ones stay.

        A policy set at run time stays too, unless what the configuration says of policies changed.

        Raises:
            FlamegovError: What is wrong with the new ones.
        """
        loaded = self._load()
        kept = self._policy_part(loaded.config) == self._policy_part(self.config)
        name = self.policy_name if kept else loaded.config.policy
        if kept and self._set_options is not None:
            factory = load_policy(name, self._set_options)
        else:
            factory = configured_policy(loaded, name)
        self.tables = self._read_tables(loaded.config)
        restart = [
            key
            for key in ("sockets", "board", "state_dir")
            if getattr(loaded.config, key) != getattr(self.config, key)
        ]
        self.loaded = loaded
        why = "as configured"
        if self._set_options is not None:
            why = "as set at run time" if kept else "the configuration of policies changed"
        if not kept:
            self._set_options = None
        self.policy_name = name
        self.controller.reconfigure(loaded.config, self.tables, factory)
        log.info(
            "configuration %s is in force, policy %s (%s), %d tables",
            loaded.digest,
            name,
            why,
            len(self.tables),
        )
        return {
            "digest": loaded.digest,
            "policy": name,
            "tables": len(self.tables),
            "needs_restart": restart,
            "errors": self.errors(),
        }

    @staticmethod
    def _policy_part(config: Config) -> tuple[str, dict[str, Any]]:
        return config.policy, config.policies

    def _read_tables(self, config: Config) -> dict[TableKey, LatencyTable]:
        """Read the tables; those that are unsound or of another board are told and left out."""
        store, identity = TableStore.load(config.tables.dir), self.board.identity
        problems = [str(problem) for problem in store.problems]
        tables: dict[TableKey, LatencyTable] = {}
        for key, table in store.tables.items():
            try:
                table.check_board(
                    online_cpus=identity.online_cpus,
                    gpu_tpc_mask=identity.tpc_mask,
                    force=config.tables.force,
                )
                tables[key] = table
            except TableError as error:
                problems.append(str(error))
        for line in problems:
            log.warning("%s", line)
        self.table_problems = problems
        return tables

    def _note_write(self, path: Path, moment_ns: int) -> None:
        self.trace.append((moment_ns, f"{path.parent.name}/{path.name}"))

    def _on_signal(self, number: int) -> bool:
        if number != signal.SIGHUP:
            return False
        try:
            self.reload()
        except FlamegovError as error:
            log.error("old configuration kept: %s", error)
        return True


def run_daemon(load: Callable[[], Loaded], *, dry_run: bool) -> int:
    """Run until SIGTERM or SIGINT.

    Args:
        load: Reads the configuration; called again on reload.
        dry_run: Writes are logged, not made.

    Returns:
        Exit code: 0, or 4 when the board could not be given back in full.

    Raises:
        FlamegovError: The daemon cannot start.
    """
    config = load().config
    raise_file_limit()
    with signals() as signals_fd, locked(Path(config.state_dir), Path(config.board.root)):
        if not dry_run:
            restore_leftovers(config)
        daemon = Daemon(load, dry_run=dry_run)
        gc.collect()
        gc.freeze()
        daemon.serve(signals_fd)
    return 0 if daemon.clean else EXIT_STUCK


@contextlib.contextmanager
def signals() -> Iterator[int]:
    """Turn the signals that end or reload the daemon into bytes on a descriptor.

    From here on none of them is lost, however early it comes: it waits there for the loop.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # Without a handler of their own these would end the process before the board is given back.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _wake_only)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reader)
        os.close(writer)


def raise_file_limit() -> None:
    """Take all the descriptors we may have: libzmq aborts when it cannot accept for want of one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _wake_only(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number arrives at the loop through the wake-up descriptor."""
