"""Find policies by name among the installed packages.

A policy is an entry point of the group ``flamegov.policies``. Only the one that is named is
imported, so that a broken or heavy plug-in costs nobody else anything.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module, invalidate_caches
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from estimators.errors import FlamegovError, PolicyError
from policies.base import API_VERSION, Policy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "flamegov.policies"

OWN = {
    "flame": "policies.flame:FlamePolicy",
    "max": "policies.constant:MaxPolicy",
    "powersave": "policies.constant:PowersavePolicy",
    "fixed": "policies.constant:FixedPolicy",
    "ztt": "policies.ztt:ZttPolicy",
    "schedutil": "policies.schedutil:SchedutilPolicy",
    "simple_ondemand": "policies.schedutil:SimpleOndemandPolicy",
    "jetson_clocks": "policies.references:JetsonClocksPolicy",
}
"""Our own entry points again: to read every package's metadata costs 0.1 s of the start."""


class PolicyInfo(NamedTuple):
    """An installed policy, not imported yet.

    Attributes:
        name: Name to ask for it by.
        target: Module and class.
        distribution: Package that brings it; empty if unknown.
    """

    name: str
    target: str
    distribution: str


class OptionInfo(NamedTuple):
    """One option of a policy.

    Attributes:
        name: Its key.
        type: Its type, for people.
        default: Value if it is not given.
        unit: Unit, or empty.
        help: One line about it.
    """

    name: str
    type: str
    default: object
    unit: str
    help: str


@dataclass(frozen=True, slots=True)
class PolicyFactory:
    """Makes instances of one policy with the same options: one per session, or one per board.

    Attributes:
        name: Name it was asked for by.
        cls: Class of the policy.
        options: Options, checked.
    """

    name: str
    cls: type[Policy]
    options: Mapping[str, Any]

    def __call__(self) -> Policy:
        """Make an instance."""
        return self.cls(**self.options)


def available_policies() -> list[PolicyInfo]:
    """List the installed policies by name, without importing any."""
    return [
        PolicyInfo(name, point.value, _distribution(point))
        for name, point in sorted(_points().items())
    ]


def installed() -> dict[str, str]:
    """Tell the installed policies by name, each with the package that brings it."""
    return {info.name: info.distribution or info.target for info in available_policies()}


def load_policy_class(name: str) -> type[Policy]:
    """Import the class of one policy.

    Raises:
        PolicyError: There is no such policy, it cannot be imported, or it was written for another
            version of the contract.
    """
    if name in OWN:
        module, _, attribute = OWN[name].partition(":")
        return cast("type[Policy]", getattr(import_module(module), attribute))
    points = _points()
    if name not in points:
        raise PolicyError(
            f"unknown policy {name!r}",
            why=f"installed are {', '.join(sorted(points))}",
            hint=_suggest(name, points),
        )
    point = points[name]
    where = f"policy {name} of {_distribution(point) or point.value}"
    try:
        cls = point.load()
    except (Exception, SystemExit) as exc:  # an import may raise anything; tell who named it
        raise PolicyError(
            "cannot be imported",
            where=where,
            why=f"{type(exc).__name__}: {exc}",
            hint="repair or remove that package",
        ) from exc
    api = getattr(cls, "api", None)
    if api != API_VERSION:
        raise PolicyError(
            f"written for contract {api}, not {API_VERSION}",
            where=where,
            hint="install a version of it that fits this flamegov",
        )
    return cast("type[Policy]", cls)


def load_policy(name: str, options: Mapping[str, Any] | None = None) -> PolicyFactory:
    """Prepare a policy for use.

    Args:
        name: Name of the policy.
        options: Its options; those left out keep their defaults.

    Returns:
        A factory that has made one instance already, so that it will not fail later.

    Raises:
        PolicyError: As :func:`load_policy_class`; or an option is unknown, of the wrong type or
            out of its range.
    """
    cls = load_policy_class(name)
    factory = PolicyFactory(name, cls, MappingProxyType(_check_options(cls, name, options or {})))
    try:
        factory()
    except FlamegovError:
        raise
    except (Exception, SystemExit) as exc:  # a plug-in's constructor may raise anything
        why = f"{type(exc).__name__}: {exc}"
        raise PolicyError("cannot be made", where=f"policy {name}", why=why) from exc
    return factory


def describe_options(cls: type[Policy]) -> list[OptionInfo]:
    """List the options of a policy, in the order they are declared; none if it is no dataclass."""
    plugged: Any = cls  # whatever a plug-in brings; the static type promises too much
    if not is_dataclass(plugged):
        return []
    hints = get_type_hints(cls)
    return [
        OptionInfo(
            name=item.name,
            type=_type_name(hints[item.name]),
            default=None if item.default is MISSING else item.default,
            unit=str(item.metadata.get("unit", "")),
            help=str(item.metadata.get("help", "")),
        )
        for item in fields(plugged)
        if item.init
    ]


def _check_options(cls: type[Policy], name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    known = {info.name: info for info in describe_options(cls)}
    hints = get_type_hints(cls)
    checked = {}
    for key, value in options.items():
        if key not in known:
            raise PolicyError(
                f"unknown option {key!r}",
                where=f"policy {name}",
                why=f"its options are {', '.join(known)}" if known else "it has no options",
                hint=_suggest(key, known),
            )
        try:
            checked[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as exc:
            raise PolicyError(
                f"option {key} cannot be {value!r}",
                where=f"policy {name}",
                why=str(exc),
                hint=f"give {known[key].type}: such as {known[key].default!r}",
            ) from exc
    return checked


def _points() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points

    invalidate_caches()  # a daemon that runs for weeks must see what was installed since
    return {point.name: point for point in entry_points(group=GROUP)}


def _distribution(point: "EntryPoint") -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else ""


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " | ".join(str(value) for value in get_args(hint))
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _suggest(word: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else ""
