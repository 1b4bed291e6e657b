"""Configuration: one TOML file plus ``conf.d/*.toml``, strict, with a default for every key.

Order, later wins: defaults, the file, ``conf.d`` beside it in name order. An unknown key is an
error with the nearest match; a reload that fails leaves the old configuration in force.
"""

import difflib
import hashlib
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from estimators.errors import PolicyError
from governor.errors import ConfigError

if TYPE_CHECKING:
    from policies.registry import PolicyFactory

if sys.version_info >= (3, 11):
    import tomllib
else:  # JetPack 6 ships Python 3.10
    import tomli as tomllib

DEFAULT_PATH = Path("/etc/flamegov/flamegov.toml")

Hz = Annotated[int, Meta(ge=0, le=10**11)]
Ms = Annotated[int, Meta(ge=1, le=86_400_000)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]  # what the protocol can tell of
# No path, address or group can hold a NUL; half a surrogate stands for a byte that is no UTF-8.
Text = Annotated[str, Meta(pattern=r"^[^\x00\ud800-\udfff]*$")]


class Sockets(Struct, frozen=True, forbid_unknown_fields=True):
    """Where applications and operators reach the daemon."""

    hints: Annotated[Text, Meta(description="Endpoint for applications.")] = (
        "ipc:///run/flamegov/hints.sock"
    )
    admin: Annotated[Text, Meta(description="Endpoint for root: policy, reload, pause.")] = (
        "ipc:///run/flamegov/admin.sock"
    )
    group: Annotated[
        Text, Meta(description="Group that may use the hints socket (mode 0660); '' = leave.")
    ] = "flamegov"

    def __post_init__(self) -> None:
        """Check what the daemon could not guard, or not bind twice.

        Raises:
            ValueError: An address is none of a socket file, or both are the same.
        """
        for name in ("hints", "admin"):
            path = getattr(self, name).removeprefix("ipc://")
            # Neither an abstract name nor one that ZeroMQ picks has a mode or a group.
            if path.startswith("@") or path == "*":
                raise ValueError(f"{name} must name a socket file, not 'ipc://{path}'")
        if self.hints == self.admin:
            raise ValueError("hints and admin must differ")


class Tables(Struct, frozen=True, forbid_unknown_fields=True):
    """Latency tables."""

    dir: Annotated[Text, Meta(description="Folder of *.npz tables.")] = "/var/lib/flamegov/tables"
    force: Annotated[
        bool, Meta(description="Accept tables made with other cores or TPCs online.")
    ] = False


class BoardConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The hardware."""

    driver: Annotated[str, Meta(description="Entry point of group flamegov.boards.")] = "sysfs"
    root: Annotated[Text, Meta(description="Folder that holds sys/ and proc/.")] = "/"
    gpu_mode: Annotated[
        Literal["auto", "pin", "userspace"],
        Meta(description="How the GPU clock is set; auto = userspace where offered, else pin."),
    ] = "auto"
    poll_ms: Annotated[Ms, Meta(description="Period of reading sensors and limits, ms.")] = 1000


class Cpu(Struct, frozen=True, forbid_unknown_fields=True):
    """The CPU is not ours alone."""

    floor_hz: Annotated[
        Hz, Meta(description="Never ask for less, Hz; 0 = the minimum found on the board.")
    ] = 0


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What the daemon may do to the board and applications to the daemon."""

    lower_min: Annotated[
        bool, Meta(description="Allow lowering a minimum clock that was found set.")
    ] = False
    sessions: Annotated[Count, Meta(description="Sessions in all.")] = 64
    sessions_per_peer: Annotated[Count, Meta(description="Sessions of one connection.")] = 16
    message_bytes: Annotated[
        int, Meta(ge=256, le=4096, description="Largest message; more ends the connection.")
    ] = 4096
    lease_ms: Annotated[
        Ms, Meta(description="A session ends when its client was silent for so long, ms.")
    ] = 30_000


class Idle(Struct, frozen=True, forbid_unknown_fields=True):
    """What happens when no session is active."""

    action: Annotated[
        Literal["hold", "floor", "release"],
        Meta(description="Keep the last clocks, go to the lowest, or give the board back."),
    ] = "release"
    after_ms: Annotated[Ms, Meta(description="Delay before the action, ms.")] = 2000


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration."""

    policy: Annotated[Text, Meta(description="Policy in force; see 'flamegov policy list'.")] = (
        "flame"
    )
    policies: Annotated[
        dict[str, dict[str, Int64 | float | str | bool]],
        Meta(description="Options per policy: [policies.NAME]."),
    ] = {}
    sockets: Sockets = Sockets()
    tables: Tables = Tables()
    board: BoardConfig = BoardConfig()
    cpu: Cpu = Cpu()
    limits: Limits = Limits()
    idle: Idle = Idle()
    state_dir: Annotated[
        Text, Meta(description="Lock and restore journal; must not survive a reboot.")
    ] = "/run/flamegov"
    restore_on_exit: Annotated[
        bool, Meta(description="Give the board back on exit; false = leave the clocks.")
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least level that is logged."),
    ] = "info"


class Loaded(Struct, frozen=True):
    """A configuration with the files it came from.

    Attributes:
        config: The values.
        files: Files read, in order.
        origin: Dotted key -> file that set it; keys left at their default are absent.
        digest: Short hash of the values, to tell two configurations apart.
    """

    config: Config
    files: tuple[str, ...]
    origin: dict[str, str]
    digest: str


def load_config(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Loaded:
    """Read, merge and validate the configuration.

    Args:
        path: The file; None reads the default place, where a missing file means defaults.
        overrides: Nested values that win over every file (command line).

    Raises:
        ConfigError: A file is missing, is no TOML, or has a wrong key or value.
    """
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    files = list(_files(path))
    for file in files:
        try:
            _merge(merged, _parse(file), origin, str(file))
        except RecursionError:
            hint = "no key of flamegov lies deeper than three sections"
            raise ConfigError("nested too deeply", where=str(file), hint=hint) from None
    if overrides:
        _merge(merged, overrides, origin, "command line")
    try:
        config = msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise _explain(error, merged, origin, files) from None
    digest = hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()[:12]
    return Loaded(config, tuple(map(str, files)), origin, digest)


def _files(path: Path | None) -> Iterator[Path]:
    main = DEFAULT_PATH if path is None else path
    try:
        found = main.exists()
    except OSError as error:  # a folder on the way that may not be searched, a name too long
        raise ConfigError("cannot read", where=str(main), why=error.strerror or "") from None
    if found:
        yield main if path else _regular(main)
    elif path is not None:
        raise ConfigError(
            "no such configuration file",
            where=str(path),
            hint="give an existing file, or none to use the defaults",
        )
    if path is None or found:
        yield from map(_regular, sorted((main.parent / "conf.d").glob("*.toml")))


def _regular(file: Path) -> Path:
    """Refuse what nobody named and reading might never end of: a FIFO, a device, a folder."""
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise ConfigError("cannot read", where=str(file), why=error.strerror or "") from None
    if not stat.S_ISREG(mode):
        raise ConfigError("not a regular file", where=str(file), hint="move it elsewhere")
    return file


def _parse(file: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        return values
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("cannot read", where=str(file), why=str(error)) from None
    except ValueError as error:  # TOMLDecodeError is one; so is an integer of 5000 digits
        raise ConfigError(
            "not valid TOML", where=str(file), why=str(error), hint="correct that line"
        ) from None


def _merge(
    into: dict[str, Any], new: Mapping[str, Any], origin: dict[str, str], file: str, at: str = ""
) -> None:
    for key, value in new.items():
        dotted = f"{at}{key}"
        if isinstance(value, Mapping):
            child = into.get(key)
            if not isinstance(child, dict):
                child = into[key] = {}
            _merge(child, value, origin, file, f"{dotted}.")
        else:
            into[key] = value
            origin[dotted] = file


def _explain(
    error: msgspec.ValidationError,
    merged: Mapping[str, Any],
    origin: Mapping[str, str],
    files: list[Path],
) -> ConfigError:
    """Turn msgspec's text into one line: file, key, reason and the nearest right key."""
    text = str(error)
    reason, _, where = text.partition(" - at `$")
    key = where.rstrip("`").lstrip(".")
    hint = "what is allowed: flamegov config schema"
    if "matching regex" in reason:
        reason = "holds a NUL or bytes that are not UTF-8"
    unknown = re.search(r"unknown field `([^`]+)`", reason)
    if unknown:
        section = key
        key = f"{section}.{unknown[1]}" if section else unknown[1]
        reason, hint = "unknown key", "the keys: flamegov config show --defaults"
        near = difflib.get_close_matches(unknown[1], _keys(section), n=1)
        if near:
            hint = f"did you mean '{near[0]}'?"
    where = _source(origin, key) or ", ".join(map(str, files))
    return ConfigError(f"key '{key}'", where=where, why=reason, hint=hint)


def _source(origin: Mapping[str, str], key: str) -> str:
    """Tell the file that set a key, or a key below it; empty if none did."""
    found = [file for k, file in origin.items() if k == key or k.startswith(f"{key}.")]
    return found[-1] if found else ""


def configured_policy(loaded: Loaded, name: str) -> "PolicyFactory":
    """Prepare a policy with the options that the configuration gives it.

    Raises:
        PolicyError: It is unknown, broken, or an option is wrong; the file is told.
    """
    from policies.registry import load_policy  # here, for a quick start

    try:
        return load_policy(name, loaded.config.policies.get(name, {}))
    except PolicyError as error:
        file = _source(loaded.origin, f"policies.{name}") or _source(loaded.origin, "policy")
        where = ": ".join(filter(None, (file, error.where)))
        raise PolicyError(error.what, where=where, why=error.why, hint=error.hint) from error


def _keys(section: str) -> list[str]:
    struct: Any = Config
    for part in filter(None, section.split(".")):
        struct = next(f.type for f in msgspec.structs.fields(struct) if f.name == part)
    return [field.name for field in msgspec.structs.fields(struct)]


def flatten(config: Struct, at: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield ``(dotted key, value, help)`` of every key, sections in order."""
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Struct):
            yield from flatten(value, f"{at}{field.name}.")
        else:
            yield f"{at}{field.name}", value, _help(field.type)


def _help(kind: Any) -> str:
    info = msgspec.inspect.type_info(kind)
    extra = getattr(info, "extra_json_schema", None) or {}
    return str(extra.get("description", ""))


def schema() -> dict[str, Any]:
    """Tell the JSON schema of the configuration."""
    return msgspec.json.schema(Config)
