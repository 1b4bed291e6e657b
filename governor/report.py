"""What the daemon tells of itself: status, and latencies with slack. Changes nothing."""

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.table import LatencyTable
from governor.controller import Controller
from governor.guard import Guard
from governor.sessions import Session
from policies.base import Job, OperatingPoint, Policy

if TYPE_CHECKING:
    from governor.daemon import Daemon


def status(daemon: "Daemon", *, detail: bool) -> dict[str, Any]:
    """Describe the daemon, the board and the sessions."""
    from importlib.metadata import version  # here, for a quick start

    controller, actuator = daemon.controller, daemon.actuator
    state = actuator.state
    body: dict[str, Any] = {
        "version": version("flamegov"),
        "uptime_s": round((time.monotonic_ns() - daemon.started_ns) / 1e9, 3),
        "policy": daemon.policy_name,
        "mode": _mode(daemon),
        "point": _points(controller, actuator.point(), state.emc_hz),
        "power_mw": state.total_mw,
        "counters": dict(daemon.server.counters)
        | {
            "connections_opened": daemon.server.hints.opened,
            "connections_closed": daemon.server.hints.closed,
        }
        | {kind.__name__.lower(): n for kind, n in daemon.server.requests.items()}
        | {
            "decisions": controller.decisions,
            "changes": controller.changes,
            "policy_errors": controller.policy_errors,
        },
        "errors": daemon.errors(),
    }
    if controller.shadow is not None:
        body["shadow"] = controller.shadow.report()
    if detail:
        body |= _detail(daemon)
    return body


def _mode(daemon: "Daemon") -> str:
    if daemon.dry_run:
        return "dry run, paused" if daemon.controller.paused else "dry run"
    if daemon.actuator.held:
        return "giving back" if daemon.controller.paused else "in control"
    return "paused" if daemon.controller.paused else "waiting"


def _points(
    controller: Controller, point: OperatingPoint, emc_hz: int | None
) -> dict[str, int | None]:
    wanted = controller.point or OperatingPoint(0, 0)
    return {
        "wanted_cpu_hz": wanted.cpu_hz,
        "wanted_gpu_hz": wanted.gpu_hz,
        "cpu_hz": point.cpu_hz,
        "gpu_hz": point.gpu_hz,
        "emc_hz": emc_hz,
    }


def _detail(daemon: "Daemon") -> dict[str, Any]:
    state, identity = daemon.actuator.state, daemon.board.identity
    attainable = daemon.controller.view.attainable
    return {
        "board": {
            "root": daemon.config.board.root,
            "model": identity.model,
            "l4t": identity.l4t,
            "power_mode": identity.power_mode,
            "online_cpus": list(identity.online_cpus),
            "cpu_range_hz": [attainable.cpu_hz[0], attainable.cpu_hz[-1]]
            if attainable.cpu_hz
            else [],
            "gpu_range_hz": [attainable.gpu_hz[0], attainable.gpu_hz[-1]]
            if attainable.gpu_hz
            else [],
        },
        "config": {"files": list(daemon.loaded.files), "digest": daemon.loaded.digest},
        "tables": [f"{model}/{phase}" for model, phase in sorted(daemon.controller.tables)],
        "rails_mw": dict(state.rails_mw),
        "temps_mc": dict(state.temps_mc),
        "missing": dict(state.missing),
        "writers": [
            {
                "node": writer.node.name,
                "target_hz": writer.target_hz,
                "effective_hz": writer.effective_hz,
                "writes": writer.writes,
                "errors": writer.errors,
                "error": writer.error,
            }
            for writer in daemon.actuator.writers
        ],
        "sessions": [_session(session, daemon) for session in daemon.controller.sessions],
    }


def _session(session: Session, daemon: "Daemon") -> dict[str, Any]:
    decision, header, count = session.decision, session.table.header, session.counters
    point = decision.point if decision else None
    return {
        "session": session.key[1],
        "name": session.name,
        "peer": daemon.controller.sessions.peers[session.key[0]].address,
        "model": header.model,
        "phase": header.phase,
        "active": daemon.controller.is_active(session),
        "deadline_us": session.deadline_us,
        "context": session.context,
        "cpu_hz": point.cpu_hz if point else None,
        "gpu_hz": point.gpu_hz if point else None,
        "predicted_us": _number(decision.predicted_us) if decision else None,
        "latency_us": session.latency_us,
        "feasible": decision.feasible if decision else None,
        "reason": decision.reason if decision else "",
        "jobs": count.jobs,
        "late": count.late,
        "infeasible": count.infeasible,
        "aborted": count.aborted,
        "dropped": count.dropped,
        "policy": daemon.controller.guard.stats(session.policy),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def latencies(
    controller: Controller, table: LatencyTable, context: int, deadline_us: float | None
) -> dict[str, Any]:
    """Tell latency quantiles and slack at the current, the chosen and the fastest point.

    Args:
        controller: Gives the policy, the clocks in force and the attainable ones.
        table: Table of the model.
        context: Tokens in the context.
        deadline_us: Time allowed; without it there is no chosen point and no slack.
    """
    view = controller.view
    emc_hz = view.emc_hz
    fastest = _fastest(table, controller, context)
    policy = controller.policy_like(table)
    chosen = None
    if deadline_us is not None:
        chosen = controller.would_choose(Job(table, deadline_us, context))
    job = Job(table, deadline_us or 0.0, context)
    points = {"current": controller.drive.point(), "chosen": chosen, "fastest": fastest}
    return {
        "model": table.header.model,
        "phase": table.header.phase,
        "context": context,
        "emc_hz": emc_hz,
        "deadline_us": deadline_us,
        "points": {
            name: _latency(controller.guard, policy, job, point, emc_hz)
            for name, point in points.items()
            if point is not None
        },
    }


def _fastest(table: LatencyTable, controller: Controller, context: int) -> OperatingPoint | None:
    attainable = controller.view.attainable
    grid = table.slice_us(controller.view.emc_hz, context)
    allowed = np.isin(table.cpu_hz, attainable.cpu_hz)[:, None] & np.isin(
        table.gpu_hz, attainable.gpu_hz
    )
    if not allowed.any():
        return None
    c, g = np.unravel_index(int(np.where(allowed, grid, np.inf).argmin()), grid.shape)
    return OperatingPoint(int(table.cpu_hz[c]), int(table.gpu_hz[g]))


def _latency(
    guard: Guard, policy: Policy, job: Job, point: OperatingPoint, emc_hz: int
) -> dict[str, Any]:
    body: dict[str, Any] = {"cpu_hz": point.cpu_hz, "gpu_hz": point.gpu_hz}
    latency_us = guard.predict_us(policy, job, point, emc_hz)
    if latency_us is None:
        return body | {"latency_us": None, "note": "the policy failed, see the errors of status"}
    if not math.isfinite(latency_us):
        return body | {"latency_us": None, "note": "these clocks are not in the table"}
    body["latency_us"] = round(latency_us, 1)
    table = job.table
    if table.tail_ratio is not None and table.tail_levels is not None:
        ratios = table.tail_ratio[table.emc_index(emc_hz)[0]]
        body["quantiles_us"] = {
            f"{level:g}": round(latency_us * float(ratio), 1)
            for level, ratio in zip(table.tail_levels, ratios, strict=True)
        }
    if job.deadline_us:
        body["slack_us"] = round(job.deadline_us - latency_us, 1)
    return body
