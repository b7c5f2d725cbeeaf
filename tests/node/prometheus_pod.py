# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus in a pod, with the shipped scrape job, as in a cluster without the operator."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from api import names
from tests.agent.agent_process import until
from tests.controlplane.builds import binaries
from tests.controlplane.families import PROMETHEUS
from tests.controlplane.plane import Object
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.shipped import FOLDER
from tests.node import images
from tests.node.real_cluster import RealCluster
from tests.node.real_node import SOON, RealNode

IMAGE: Final = "localhost/prometheus:1"
ACCOUNT: Final = "prometheus"
PORT: Final = 9090
SHIPPED: Final = "15s"
"""How often the shipped job scrapes."""
_RIGHTS: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces"
_CONFIGURATION: Final = "scrape_config_files: [scrape.yml]\n"


@contextmanager
def running(
    cluster: RealCluster,
    node: RealNode,
    folder: Path,
    *,
    interval: str = SHIPPED,
    namespace: str = "",
    job: str = "",
    scraped: str = names.NAMESPACE,
) -> Iterator[Prometheus]:
    """Run it on a node while the block lasts; it may list pods in the ``scraped`` namespace alone,
    and what leads to them.

    It finds the API server, and whom to scrape, by what a pod has: the service's address, its
    account's token, the cluster's authority. ``namespace``: its own, one that is made unless given.
    ``job``: scrape configurations other than the shipped ones, with an interval of their own.
    """
    node.import_image(_image(folder, job or _shipped(interval)))
    plane = cluster.plane
    namespace = namespace or plane.namespace("monitoring")
    plane.account(namespace, ACCOUNT)
    reads = {"verbs": ["get", "list", "watch"]}
    rules = [{"apiGroups": [""], "resources": ["pods"], **reads}]
    if job:
        rules.append({"apiGroups": [""], "resources": ["services"], **reads})
        rules.append({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], **reads})
    plane.demand(
        "POST",
        f"{_RIGHTS}/{scraped}/roles",
        {"metadata": {"name": namespace}, "rules": rules},
    )
    account = {"kind": "ServiceAccount", "namespace": namespace, "name": ACCOUNT}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": namespace}
    plane.demand(
        "POST",
        f"{_RIGHTS}/{scraped}/rolebindings",
        {"metadata": {"name": namespace}, "subjects": [account], "roleRef": role},
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"
    plane.demand("POST", pods, _pod(node.name))

    def address() -> str:
        status = plane.demand("GET", f"{pods}/{ACCOUNT}")["status"]
        return str(status.get("podIP", "")) if status.get("phase") == "Running" else ""

    try:
        until(lambda: address() != "", SOON)
        prometheus = Prometheus(port=plane.programs.relay(f"{address()}:{PORT}"))
        until(prometheus.ready, SOON)
        yield prometheus
    finally:
        plane.demand("DELETE", f"{pods}/{ACCOUNT}?gracePeriodSeconds=0")


def _shipped(interval: str) -> str:
    job = (FOLDER / "prometheus" / "scrape.yml").read_text(encoding="utf-8")
    assert f"scrape_interval: {SHIPPED}\n" in job
    return job.replace(f"scrape_interval: {SHIPPED}\n", f"scrape_interval: {interval}\n")


def _image(folder: Path, job: str) -> Path:
    root = folder / "prometheus"
    (root / "etc").mkdir(parents=True)
    shutil.copy2(binaries(PROMETHEUS) / "prometheus", root)
    (root / "etc" / "scrape.yml").write_text(job, encoding="utf-8")
    (root / "etc" / "prometheus.yml").write_text(_CONFIGURATION, encoding="utf-8")
    command = [
        "/prometheus",
        "--config.file=/etc/prometheus.yml",
        "--storage.tsdb.path=/data",
        f"--web.listen-address=:{PORT}",
        "--log.level=warn",
    ]
    return images.write(folder / "prometheus.tar", IMAGE, root, {"Entrypoint": command})


def _pod(node: str) -> Object:
    container = {
        "name": "prometheus",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "nodeName": node,
        "serviceAccountName": ACCOUNT,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    return {"metadata": {"name": ACCOUNT}, "spec": spec}
