# SPDX-License-Identifier: Apache-2.0
"""The first steps of each reader in a cluster, by the lines of the pages."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import names
from tests import pages
from tests.cluster.scheduling import run
from tests.controlplane.builds import binaries
from tests.controlplane.definitions import wait_until_served
from tests.controlplane.families import PROMETHEUS
from tests.controlplane.plane import Plane
from tests.kubelet_nodes import play

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ADMIN, SRE, ENGINEER, LAPTOP = (
    pages.page(f"docs/start/{name}.md") for name in ("admin", "sre", "ml-engineer", "laptop")
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[play.Cluster]:
    """The nodes that the page for engineers names."""
    found = re.search(r'make cluster MACHINES="([\w -]+)"', ENGINEER)
    assert found is not None
    with play.started(found[1].split()) as started:
        yield started


def shown(cluster: play.Cluster, folder: Path, commands: str) -> str:
    """What commands print after the line that ``make cluster`` has one paste."""
    setup = next(line for line in play.advice(cluster).splitlines() if "export KUBECONFIG=" in line)
    done = subprocess.run(
        ["/bin/bash", "-euc", f"{setup}\n{commands}"],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_laptop_s_pod_has_two_linked_gpus(cluster: play.Cluster, tmp_path: Path) -> None:
    output = shown(cluster, tmp_path, pages.marked(LAPTOP, "cluster"))
    assert "A100-PCIE-40GB" in output
    assert output.count("RANK") == 1
    (held,) = re.findall(r"default/two-gpus holds (.*)", output)
    assert re.search(r"linked by \d+ NVLinks?$", held)


def test_an_engineer_s_pods_land_as_the_page_says(cluster: play.Cluster, tmp_path: Path) -> None:
    output = shown(cluster, tmp_path, pages.marked(ENGINEER, "linked"))
    header, best, *_ = output.splitlines()
    assert header.split()[:2] == ["NODE", "RANK"]
    assert best.split()[0] in output.splitlines()[-1].split()  # where the pod is
    shown(cluster, tmp_path, pages.marked(ENGINEER, "mig"))
    where = "kubectl get pod serve -o jsonpath={.spec.nodeName}"
    assert shown(cluster, tmp_path, where) == "hgx-h100-mig-mixed"
    assert "pod-too-large" in shown(cluster, tmp_path, pages.marked(ENGINEER, "pending"))


def test_an_admin_and_an_sre_install_look_and_remove(tmp_path: Path) -> None:
    clone = pages.clone(tmp_path)
    daemonset = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/daemonsets/gpuscape-agent"
    with Plane.start(tmp_path / "plane", controller_manager=False) as plane:
        for file in sorted(binaries(PROMETHEUS).glob("*.yaml")):
            plane.kubectl("create", "-f", file)
        wait_until_served(plane, "crd", "--all")
        run(plane, pages.marked(ADMIN, "install"), clone)
        (container,) = plane.demand("GET", daemonset)["spec"]["template"]["spec"]["containers"]
        assert container["image"].startswith("registry.example/gpuscape:")
        run(plane, pages.marked(ADMIN, "verify"), clone)
        run(plane, pages.marked(SRE, "monitoring"), clone)
        path = f"/apis/monitoring.coreos.com/v1/namespaces/{names.NAMESPACE}/prometheusrules"
        assert len(plane.demand("GET", path)["items"]) == 1
        run(plane, pages.marked(ADMIN, "remove"), clone)
        assert plane.request("GET", daemonset).status == 404
