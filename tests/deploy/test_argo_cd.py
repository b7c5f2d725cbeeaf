# SPDX-License-Identifier: Apache-2.0
"""The chart synced by Argo CD's own engine, which renders it and runs its hooks in its own way."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.agent.agent_process import until
from tests.controlplane.builds import binaries
from tests.controlplane.families import ARGO_CD
from tests.controlplane.plane import Plane
from tests.deploy.chart import ALL_PROGRAMS, objects, rendered

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

PATIENCE_SECONDS: Final = 180.0
NAMESPACE: Final = "gpuscape"
TLS: Final = "gpuscape-scheduler-tls"
LESS: Final = {**ALL_PROGRAMS, "scheduler": {"enabled": False}}
KINDS: Final = (
    *("daemonsets.apps", "deployments.apps", "services", "secrets", "serviceaccounts"),
    *("configmaps", "roles", "rolebindings", "clusterroles", "clusterrolebindings"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    *("networkpolicies", "poddisruptionbudgets"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """With the namespace, and nothing of ours in it."""
    with Plane.start(tmp_path_factory.mktemp("plane")) as plane:
        plane.kubectl("create", "namespace", NAMESPACE)
        yield plane


def synced(cluster: Plane, values: Mapping[str, Any]) -> None:
    """As Argo CD renders a chart: by ``helm template``, hooks among the rest."""
    program = binaries(ARGO_CD) / "argo-cd-sync"
    done = subprocess.run(
        [program, cluster.kubeconfig(), NAMESPACE],
        input=rendered(values),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def there(cluster: Plane) -> set[tuple[str, str]]:
    """Kind and name of what is named as the chart's objects are."""
    listed = json.loads(cluster.kubectl("get", ",".join(KINDS), "-A", "-o", "json"))["items"]
    named = {(each["kind"], each["metadata"]["name"]) for each in listed}
    return {(kind, name) for kind, name in named if name.startswith("gpuscape")}


def meant(values: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Those of the chart's objects that are no hooks."""
    return {(kind, name) for kind, _, name in objects(rendered(values))}


def test_each_sync_makes_what_the_chart_has_and_no_object_of_a_hook_stays(cluster: Plane) -> None:
    synced(cluster, ALL_PROGRAMS)
    until(lambda: there(cluster) == meant(ALL_PROGRAMS), PATIENCE_SECONDS)

    filled = json.dumps({"data": {"tls.crt": "eA=="}})
    cluster.kubectl("patch", "secret", TLS, "-n", NAMESPACE, "--type=merge", "-p", filled)
    synced(cluster, ALL_PROGRAMS)
    secret = json.loads(cluster.kubectl("get", "secret", TLS, "-n", NAMESPACE, "-o", "json"))
    assert secret["data"] == {"tls.crt": "eA=="}, "what gpuscape-certificates filled in was lost"

    synced(cluster, LESS)
    until(lambda: there(cluster) == meant(LESS), PATIENCE_SECONDS)
