"""The sample of ``policies/README.md``, installed beside a daemon that runs already."""

import re
import sys
from pathlib import Path

from governor.config import tomllib
from governor.messages import Policy, Reply, Status

from .daemons import Running, Wire

ROOT = Path(__file__).parents[2]
SCRIPT = "import sys; sys.path += [{!r}, {!r}]; from governor.cli import dispatch; "
RUN = "sys.exit(dispatch.run(sys.argv[1:]))"


def sample(language: str) -> str:
    text = (ROOT / "policies/README.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0]


def install(folder: Path) -> None:
    """Do what pip does with a wheel."""
    project = tomllib.loads(sample("toml"))["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head)
    points = project["entry-points"]["flamegov.policies"]
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    (info / "entry_points.txt").write_text(f"[flamegov.policies]\n{lines}")
    (folder / f"{project['name']}.py").write_text(sample("python"))


def test_a_running_daemon_finds_it_and_tells_where_it_raised(tmp_path):
    site, it, log = tmp_path / "site", Running(tmp_path), tmp_path / "log"
    site.mkdir()
    script = SCRIPT.format(str(site), str(ROOT)) + RUN
    words = it.daemon.command[it.daemon.command.index("run") :]
    it.daemon.command = [sys.executable, "-I", "-c", script, *words]
    with log.open("w") as file:
        it.start(stderr=file)
    with Wire(it.admin) as root, Wire(it.hints) as wire:
        assert "steady" not in root.ask(Policy(v=1, id=1, action="list")).body["policies"]
        install(site)
        assert root.ask(Policy(v=1, id=1, action="list")).body["policies"]["steady"] == "steady 1.0"
        assert isinstance(root.ask(Policy(v=1, id=1, action="set", name="steady")), Reply)
        steady = wire.open(deadline_ns=10**8).body
        assert steady["reason"] == "steady"
        assert root.ask(Status(v=1, id=1)).body["errors"] == []
        asked = Policy(v=1, id=1, action="set", name="steady", options={"step": 50})
        assert isinstance(root.ask(asked), Reply)
        (error,) = root.ask(Status(v=1, id=1)).body["errors"]
    assert error.startswith("policy steady raised IndexError: tuple index out of range (")
    line = (
        sample("python")
        .splitlines()
        .index(next(line for line in sample("python").splitlines() if "self.step" in line))
    )
    assert f"({site}/steady.py:{line + 1}); 1 in all" in error
    assert error.partition(";")[0] in log.read_text()
    assert f"error     {error}" in it.cli("status", "--address", it.hints).stdout
    assert it.stop() == 0
