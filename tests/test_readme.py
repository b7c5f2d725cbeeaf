# SPDX-License-Identifier: Apache-2.0
"""What README and install page have people type works as it is written."""

from __future__ import annotations

import configparser
import http.client
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from api import names
from simulator.simulation import Simulation
from tests import pages
from tests.agent.agent_process import GPUSCAPE, SOON, AgentProcess, until
from tests.cluster.scheduling import run
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.plane import Plane

README = pages.page("README.md")
DOCKER = """\
#!/bin/sh
set -eu
[ "$1 $2 $3" = "buildx build -f" ]
[ -f "$4" ]
[ "$5" = -t ]
[ "$7 $8" = "--push ." ]
echo "$6" > pushed
"""
"""It builds nothing, but takes only what is there to be built."""


def test_the_command_is_on_the_path_after_the_line_that_puts_it_there(tmp_path: Path) -> None:
    script = pages.marked(README, "path")
    done = subprocess.run(
        ["/bin/sh", "-euc", script],
        cwd=pages.clone(tmp_path),
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "NV2" in done.stdout
    assert "8 x NVIDIA A100-SXM4-40GB" in done.stdout


@pytest.mark.cluster
def test_the_image_that_is_pushed_is_the_one_that_the_cluster_is_given(tmp_path: Path) -> None:
    clone = pages.clone(tmp_path)
    docker = clone / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    with Plane.start(tmp_path / "plane", controller_manager=False) as plane:
        run(plane, pages.marked(README, "cluster"), clone)
        path = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/daemonsets/gpuscape-agent"
        (container,) = plane.demand("GET", path)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == (clone / "pushed").read_text().strip()


@pytest.mark.cluster
def test_the_chart_is_installed_stopped_and_removed_by_the_lines_of_its_page(
    tmp_path: Path,
) -> None:
    clone, page = pages.clone(tmp_path), pages.page("docs/helm.md")
    path = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/daemonsets/gpuscape-agent"
    with Plane.start(tmp_path / "plane", controller_manager=False) as plane:
        run(plane, pages.marked(README, "helm"), clone)
        run(plane, pages.marked(page, "label"), clone)
        assert plane.demand("GET", path)["status"]["desiredNumberScheduled"] == 0
        run(plane, pages.marked(page, "scheduler"), clone)
        deployments = plane.demand("GET", f"/apis/apps/v1/namespaces/{names.NAMESPACE}/deployments")
        assert {it["metadata"]["name"] for it in deployments["items"]} == {
            *(names.SCHEDULER, names.CERTIFICATES),
            "gpuscape-kube-scheduler",
        }
        run(plane, pages.marked(page, "stop"), clone)
        (container,) = plane.demand("GET", path)["spec"]["template"]["spec"]["containers"]
        assert {"name": "GPUSCAPE_SINK", "value": "none"} in container["env"]
        run(plane, pages.marked(page, "remove"), clone)
        assert plane.request("GET", path).status == http.client.NOT_FOUND


def test_the_service_s_unit_starts_an_agent_and_names_no_file_that_is_not_made(
    tmp_path: Path,
) -> None:
    install = pages.page("docs/install.md")
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(pages.marked(install, "service"))
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert f"ln -s {program} " in install  # the page has made it
    simulation = Simulation.create("a30-pair", tmp_path / "machine")
    command = [str(GPUSCAPE), *arguments, "--simulate", str(simulation.state_file)]
    command += ["--listen", "127.0.0.1:0", "--probe-listen", "127.0.0.1:0", "--log-format", "json"]
    environment = dict([service["Environment"].split("=", 1)] if "Environment" in service else [])
    with subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent(signal.SIGTERM),
    ) as process:
        agent = AgentProcess(process, simulation)
        until(lambda: agent.gpus("present") == 2)
        process.terminate()
        assert process.wait(SOON) == 0
