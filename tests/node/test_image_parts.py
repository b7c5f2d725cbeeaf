# SPDX-License-Identifier: Apache-2.0
"""The image lacks what no program loads: every module, command and program starts without that."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import tarfile
import textwrap
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.main import main as gpuscape
from tests.controlplane.components import free_port
from tests.deploy.dockerfile import REPOSITORY
from tests.node import images, needs
from tools import image_root

USER = "65532:65532"
TMP = "tmp"
ENVIRONMENT = {"HOME": "/"}
"""What containerd sets for a user that has no folder."""
PACKAGES = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
    "targets"
]["wheel"]["packages"]
OPTIONAL = {"promql_parser", "_typeshed"}
"""Packages of an extra, and for type checkers: the image does not have them."""

EVERY_IMPORT = f"""
    import ast, importlib, importlib.util, pathlib, pkgutil, sys
    packages, optional = {PACKAGES!r}, {OPTIONAL!r}
    missing = []
    for top in packages:
        for found in pkgutil.walk_packages(importlib.import_module(top).__path__, top + "."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    for top in packages:
        for file in pathlib.Path(sys.modules[top].__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                else:
                    continue
                for name in names:
                    there = name in sys.modules or importlib.util.find_spec(name)
                    if not there and name.split(".")[0] not in optional:
                        missing.append(f"{{file}}: {{name}}")
    print(len(sys.modules), *missing, sep="\\n")
    """
"""Imports every module, and finds the module of every import statement, within functions too."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's file system, with what a container's runtime adds."""
    if os.geteuid() or needs.why_not():
        pytest.skip("only root may change the root folder and mount /proc")
    root = tmp_path_factory.mktemp("image")
    with tarfile.open(images.our_image()) as image:
        layer = image.extractfile(max(image, key=lambda entry: entry.size))
        assert layer is not None
        with tarfile.open(fileobj=layer) as files:
            files.extractall(root, filter="fully_trusted")  # noqa: S202  # made here
    os.mknod(root / "dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (root / "dev/null").chmod(0o666)
    root.chmod(0o755)
    return root


def in_image(root: Path, *command: str | Path) -> list[str | Path]:
    """A command that runs in the image as its user, with /proc of its own."""
    own = ("unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc")
    return [*own, "/usr/sbin/chroot", f"--userspec={USER}", root, *command]


def ran(root: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        in_image(root, *command), env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def inside(root: Path, pattern: str) -> Path:
    """The one file of that pattern, by its path in the image."""
    (file,) = root.rglob(pattern)
    return Path("/") / file.relative_to(root)


def commands() -> Iterator[tuple[str, ...]]:
    """Words of every command, groups included."""

    def below(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                if subcommand := command.get_command(context, name):
                    yield from below(subcommand, (*words, name))

    return below(gpuscape, ())


def test_what_is_left_out_is_not_there(root: Path) -> None:
    (site,) = root.rglob("site-packages")
    there = {str(file.relative_to(site)) for file in site.rglob("*")}
    assert [name for name in there if name.startswith(tuple(image_root.FILES_LEFT_OUT))] == []
    distributions = {
        name.partition("-")[0].replace("_", "-") for name in there if name.endswith(".dist-info")
    }
    assert "kubernetes" in distributions
    assert distributions.isdisjoint(image_root.PACKAGES_LEFT_OUT)


def test_every_import_of_gpuscape_has_its_module(root: Path) -> None:
    python = inside(root, "bin/python3.*[0-9]")
    done = ran(root, python, "-I", "-c", textwrap.dedent(EVERY_IMPORT))
    assert (done.returncode, done.stderr) == (0, "")
    loaded, *missing = done.stdout.split("\n")[:-1]
    assert int(loaded) > 500
    assert missing == []


def test_every_command_starts(root: Path) -> None:
    program = inside(root, "bin/gpuscape")
    words = list(commands())
    failed = {}
    for command in words:
        done = ran(root, program, *command, "--help")
        if done.returncode or not done.stdout.startswith("Usage: ") or done.stderr:
            failed[command] = done
    assert len(words) > 40
    assert failed == {}


SIMULATED = {
    "discover": ("discover", "-o", "json"),
    "labels": ("labels", "--explain"),
    "topo": ("topo", "-o", "yaml"),
    "record": ("record", "-"),
    "top": ("top", "--once"),
    "status": ("mig", "status"),
    "explain": ("mig", "explain", "1g.10gb"),
    "plan": ("mig", "plan", "all-disabled"),
    "export": ("mig", "export"),
}


@pytest.mark.parametrize("command", SIMULATED)
def test_a_command_reads_a_simulated_machine(root: Path, command: str) -> None:
    program = inside(root, "bin/gpuscape")
    done = ran(root, program, *SIMULATED[command], "--simulate", "hgx-h100-mig-mixed")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_kubeconfig_is_read(root: Path) -> None:
    """Up to an API server that does not answer."""
    content = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (root / TMP / "kubeconfig").write_text(json.dumps(content))
    done = ran(root, inside(root, "bin/gpuscape"), "free", "--kubeconfig", f"/{TMP}/kubeconfig")
    assert done.returncode == 4
    assert "127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr


FLEET = "- {machine: dgx1-v100, count: 2}\n"


def test_a_workload_is_simulated(root: Path) -> None:
    (root / TMP / "fleet.yaml").write_text(FLEET)
    options = ("--fleet", f"/{TMP}/fleet.yaml", "--pods", "50", "--seeds", "1")
    done = ran(root, inside(root, "bin/gpuscape"), "scheduler", "simulate", "usual", *options)
    assert done.returncode == 0, done.stderr
    assert "gpuscape" in done.stdout


def wait_for_metrics(address: str, agent: subprocess.Popen[str]) -> None:
    """Until the agent answers a scrape, or has ended."""
    while agent.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
                if b"DCGM_FI_DEV_GPU_TEMP" in answer.read():
                    return
        except OSError:
            time.sleep(0.2)


def test_the_agent_serves_metrics_and_ends_and_exporters_are_compared(root: Path) -> None:
    program = inside(root, "bin/gpuscape")
    address = f"127.0.0.1:{free_port()}"
    words = ("agent", "--standalone", "--simulate", "dgx-a100-mig-mixed", "--listen", address)
    command = in_image(root, program, *words, "--probe-listen", "127.0.0.1:0")
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as agent:
        try:
            wait_for_metrics(address, agent)
            compared = ran(root, program, "compare", address, address, "--duration", "1s")
        finally:
            children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGTERM)
        _, log = agent.communicate(timeout=60)
    assert "Traceback" not in log
    assert "internal error" not in log
    assert (compared.returncode, compared.stderr) == (0, ""), log
    assert "same" in compared.stdout
