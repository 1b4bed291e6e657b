"""``flamegov config``: check, show and describe the configuration."""

import argparse
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from governor.config import Config, Loaded, configured_policy, flatten, load_config, schema
from policies.registry import describe_options, load_policy_class

HELP = "check, show or describe the configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    for name, text in (
        ("check", "read and validate; exit code 2 if anything is wrong"),
        ("show", "print every key with its value, origin and meaning, as TOML"),
        ("schema", "print the JSON schema"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("--config", type=Path, help="file to read instead of the default one")
        verb.add_argument("--json", action="store_true", help="print JSON")
        if name == "show":
            verb.add_argument("--defaults", action="store_true", help="ignore all files")


def run(args: argparse.Namespace) -> int:
    """Do it."""
    if args.action == "schema":
        print(json.dumps(schema(), indent=2))
        return 0
    if args.action == "show" and args.defaults:
        loaded = Loaded(Config(), (), {}, "")
    else:
        loaded = load_config(args.config)
        check_policies(loaded)
    if args.action == "check":
        files = list(loaded.files)
        report = {"ok": True, "files": files, "digest": loaded.digest}
        print(json.dumps(report) if args.json else f"ok: {', '.join(files) or 'defaults only'}")
    elif args.json:
        print(json.dumps(msgspec.to_builtins(loaded.config), indent=2))
    else:
        print(annotated(loaded), end="")
    return 0


def check_policies(loaded: Loaded) -> None:
    """Make every policy that is named, so that wrong options show before the daemon runs.

    Raises:
        PolicyError: A policy is unknown or an option of it is wrong.
    """
    config = loaded.config
    for name in {config.policy, *config.policies}:
        configured_policy(loaded, name)


def annotated(loaded: Loaded) -> str:
    """Write the configuration as TOML, with the meaning of each key above it."""
    lines: list[str] = []
    section = ""
    # TOML: a key after a section belongs to it, so those without one come first.
    for key, value, text in sorted(flatten(loaded.config), key=lambda entry: "." in entry[0]):
        head, _, name = key.rpartition(".")
        if isinstance(value, dict):
            continue
        if head != section:
            section = head
            lines += ["", f"[{section}]"]
        lines += textwrap.wrap(text, 90, initial_indent="# ", subsequent_indent="# ")
        origin = loaded.origin.get(key)
        lines.append(f"{name} = {_toml(value)}" + (f"  # from {origin}" if origin else ""))
    for policy in sorted({loaded.config.policy, *loaded.config.policies}):
        lines += ["", f"[policies.{policy}]", *_options(policy, loaded.config)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _options(policy: str, config: Config) -> Iterator[str]:
    given = config.policies.get(policy, {})
    for option in describe_options(load_policy_class(policy)):
        unit = f" Unit: {option.unit}." if option.unit else ""
        yield from textwrap.wrap(
            f"{option.help}.{unit}", 90, initial_indent="# ", subsequent_indent="# "
        )
        yield f"{option.name} = {_toml(given.get(option.name, option.default))}"


def _toml(value: Any) -> str:
    # JSON's strings, numbers and booleans are TOML's.
    return json.dumps(value)
