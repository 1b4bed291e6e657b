import json
import os
from pathlib import Path

import msgspec
import pytest

from governor.cli import main
from governor.cli.config import annotated
from governor.config import Config, Loaded, flatten, load_config, schema
from governor.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "deploy" / "flamegov.toml"


def write(folder: Path, text: str, name: str = "flamegov.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_means_defaults(monkeypatch, tmp_path):
    monkeypatch.setattr("governor.config.DEFAULT_PATH", tmp_path / "none.toml")
    assert load_config().config == Config()


def test_conf_d_wins_over_the_file_and_the_command_line_over_both(tmp_path):
    path = write(tmp_path, 'policy = "max"\n[idle]\naction = "hold"\nafter_ms = 5')
    write(tmp_path, "[idle]\nafter_ms = 7", "conf.d/10-idle.toml")
    loaded = load_config(path, {"policy": "powersave"})
    assert (loaded.config.policy, loaded.config.idle.action) == ("powersave", "hold")
    assert loaded.config.idle.after_ms == 7
    assert loaded.origin["idle.after_ms"].endswith("10-idle.toml")
    assert loaded.origin["policy"] == "command line"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[idle]\nafter = 3", ["idle.after", "unknown key", "after_ms"]),
        ("polcy = 'max'", ["polcy", "unknown key", "policy"]),
        ("[idle]\nafter_ms = 'soon'", ["idle.after_ms", "Expected `int`"]),
        ("[limits]\nsessions = 0", ["limits.sessions", ">= 1"]),
        ("[board]\ngpu_mode = 'fast'", ["board.gpu_mode", "flamegov config schema"]),
        ("[zzz]\nx = 1", ["unknown key", "flamegov config show --defaults"]),
        ("[idle\n", ["not valid TOML", "line 1"]),
        ("policy = 3", ["policy", "Expected `str`"]),
    ],
)
def test_a_wrong_file_is_told_in_one_line_with_file_and_key(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    for word in words:
        assert word in message


def test_a_missing_file_is_an_error_if_it_was_named(tmp_path):
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_config(tmp_path / "none.toml")


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=" + "[" * 5000 + "]" * 5000, ["nested too deeply"]),
        ("[" + ".".join("a" * 5000) + "]\nb=1", ["nested too deeply"]),
        ("[limits]\nlease_ms=" + "9" * 5000, ["not valid TOML", "digits"]),
        ("[policies.flame]\nmargin=" + "9" * 30, ["policies", "9223372036854775807"]),
        ('state_dir="a\\u0000b"', ["state_dir", "NUL"]),
        ('policy="a\\u0000b"', ["policy", "NUL"]),
        ('[board]\nroot="a\\u0000b"', ["board.root", "NUL"]),
        ('[tables]\ndir="a\\u0000b"', ["tables.dir", "NUL"]),
        ('[sockets]\ngroup="a\\u0000b"', ["sockets.group", "NUL"]),
        ('[sockets]\nhints="ipc:///a\\u0000b"', ["sockets.hints", "NUL"]),
        ('[sockets]\nhints="ipc://@abstract"', ["hints", "ipc://@abstract"]),
        ('[sockets]\nadmin="ipc://*"', ["admin", "ipc://*"]),
        ('[sockets]\nhints="ipc:///a"\nadmin="ipc:///a"', ["hints and admin must differ"]),
        ("[limits]\nmessage_bytes = 4097", ["limits.message_bytes", "4096"]),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_hostile_file_is_one_line_never_a_traceback(tmp_path, text, words):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.with_name("nowhere")),
    ],
    ids=["fifo", "folder", "device", "dangling"],
)
@pytest.mark.parametrize("verb", [["config", "check"], ["run"]], ids=" ".join)
@pytest.mark.timeout(20)
def test_what_is_no_file_in_conf_d_is_one_line_and_is_not_opened(tmp_path, capsys, verb, make):
    path = write(tmp_path, 'policy = "max"')
    odd = tmp_path / "conf.d" / "50-odd.toml"
    odd.parent.mkdir()
    make(odd)
    assert main([*verb, "--config", str(path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and str(odd) in message
    assert "not a regular file" in message or "No such file" in message


@pytest.mark.timeout(20)
def test_a_fifo_at_the_default_place_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("governor.config.DEFAULT_PATH", tmp_path / "flamegov.toml")
    os.mkfifo(tmp_path / "flamegov.toml")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_config()


def test_a_link_to_a_file_in_conf_d_is_read(tmp_path):
    path = write(tmp_path, 'policy = "max"')
    write(tmp_path, 'policy = "powersave"', "elsewhere.toml")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.toml").symlink_to(tmp_path / "elsewhere.toml")
    assert load_config(path).config.policy == "powersave"


def test_a_root_that_is_no_text_is_an_error():
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(EXAMPLE, {"board": {"root": "\udcff"}})


def test_a_name_too_long_for_the_file_system_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read: File name too long"):
        load_config(tmp_path / ("x" * 300))


def test_every_key_has_a_meaning():
    assert [key for key, value, text in flatten(Config()) if not text] == []


def test_the_example_is_what_the_program_prints_and_is_accepted(capsys):
    assert EXAMPLE.read_text(encoding="utf-8") == annotated(Loaded(Config(), (), {}, ""))
    assert main(["config", "check", "--config", str(EXAMPLE)]) == 0
    assert "ok" in capsys.readouterr().out


def test_the_example_holds_the_defaults():
    config = load_config(EXAMPLE).config
    assert msgspec.structs.replace(config, policies={}) == Config()


def test_check_finds_wrong_policy_options(tmp_path, capsys):
    path = write(tmp_path, "[policies.flame]\nmargn = 0.1")
    assert main(["config", "check", "--config", str(path)]) == 2
    message = capsys.readouterr().err
    assert "margn" in message and "margin" in message and message.count("\n") == 1
    assert message.startswith(f"flamegov: {path}: policy flame: ")


def test_check_finds_an_unknown_policy(tmp_path, capsys):
    path = write(tmp_path, 'policy = "flam"')
    assert main(["config", "check", "--config", str(path)]) == 2
    message = capsys.readouterr().err
    assert "did you mean flame?" in message and message.startswith(f"flamegov: {path}: ")


def test_schema_is_json_and_names_every_section():
    text = json.dumps(schema())
    for name in ("sockets", "limits", "idle", "cpu", "board"):
        assert f'"{name}"' in text
