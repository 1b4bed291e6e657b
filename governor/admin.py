"""Answers what is not about sessions: queries, status, and what only root may ask."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from estimators.errors import FlamegovError, PolicyError
from governor import report
from governor.messages import (
    AnyRequest,
    Code,
    Pause,
    Policy,
    Query,
    Reload,
    Resume,
    Status,
    Trace,
)
from governor.sessions import RefusedError
from policies.registry import describe_options, installed, load_policy

if TYPE_CHECKING:
    from governor.daemon import Daemon


class Admin:
    """Serves one daemon; call it with a request, get the body of the reply."""

    def __init__(self, daemon: "Daemon") -> None:
        self.daemon = daemon
        self._handlers: dict[type, Callable[[Any], dict[str, Any]]] = {
            Query: self._query,
            Status: self._status,
            Policy: self._policy,
            Reload: self._reload,
            Pause: self._pause,
            Resume: self._resume,
            Trace: self._trace,
        }

    def __call__(self, request: AnyRequest) -> dict[str, Any]:
        """Do what is asked.

        Raises:
            RefusedError: It cannot be done.
        """
        return self._handlers[type(request)](request)

    def _query(self, request: Query) -> dict[str, Any]:
        table = self.daemon.controller.find_table(request.model, request.phase)
        deadline_us = request.deadline_ns / 1e3 if request.deadline_ns else None
        return report.latencies(self.daemon.controller, table, request.context, deadline_us)

    def _status(self, request: Status) -> dict[str, Any]:
        return report.status(self.daemon, detail=request.detail)

    def _policy(self, request: Policy) -> dict[str, Any]:
        try:
            if request.action == "set":
                assert request.name is not None  # checked on decoding
                self.daemon.use_policy(request.name, dict(request.options))
            if request.action == "shadow":
                self.daemon.use_shadow(request.name, dict(request.options))
                return {"shadow": request.name}
            if request.action == "list":
                return {"policies": installed(), "in_force": self.daemon.policy_name}
            return self._show(request.name or self.daemon.policy_name)
        except PolicyError as error:
            raise RefusedError(Code.POLICY, str(error)) from None

    def _show(self, name: str) -> dict[str, Any]:
        policy = load_policy(name, self.daemon.options_of(name))()
        return {
            "name": name,
            "in_force": name == self.daemon.policy_name,
            "scope": policy.scope,
            "help": (type(policy).__doc__ or "").strip().partition("\n")[0],
            "options": [
                {
                    "name": option.name,
                    "value": getattr(policy, option.name),
                    "default": option.default,
                    "unit": option.unit,
                    "help": option.help,
                }
                for option in describe_options(type(policy))
            ],
        }

    def _reload(self, _: Reload) -> dict[str, Any]:
        try:
            return self.daemon.reload()
        except FlamegovError as error:
            raise RefusedError(Code.INTERNAL, f"old configuration kept: {error}") from None

    def _pause(self, _: Pause) -> dict[str, Any]:
        self.daemon.controller.pause()
        return {}

    def _resume(self, _: Resume) -> dict[str, Any]:
        self.daemon.controller.resume()
        return {}

    def _trace(self, _: Trace) -> dict[str, Any]:
        return {"writes": [list(entry) for entry in self.daemon.trace]}
