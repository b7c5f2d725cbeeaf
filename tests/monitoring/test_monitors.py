# SPDX-License-Identifier: Apache-2.0
"""How Prometheus finds the agents in a cluster, and the labels that series have then."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from api import names
from scheduler.extender.routes import ClientTerms
from scheduler.extender.server_tls import ServerTls
from tests.cluster.certificates import SECRETS
from tests.cluster.scheduling import SERVICE
from tests.controlplane.builds import binaries
from tests.controlplane.definitions import wait_until_served
from tests.controlplane.families import PROMETHEUS
from tests.controlplane.plane import MERGE_PATCH, Object, Plane
from tests.deploy.daemonset import DEPLOY, daemonset
from tests.deploy.deployments import deployment
from tests.monitoring import page, promtool
from tests.monitoring import prometheus as real
from tests.monitoring.fleet import COORDINATOR, EXTENDER, Fleet
from tests.monitoring.operator import scrape_config
from tests.monitoring.prometheus import Config
from tests.monitoring.shipped import FOLDER, RULES
from tests.scheduler.extenders import served
from tests.web.certificates import authority, issued

pytestmark = pytest.mark.cluster

FOLDERS = (
    *("pod-monitor", "service-monitor", "scheduler-monitor", "coordinator-monitor"),
    *("rules", "dashboards", "network-policy"),
)
SCRAPE = FOLDER / "prometheus" / "scrape.yml"
SCRAPE_SCHEDULER = FOLDER / "prometheus" / "scrape-scheduler.yml"
SCRAPE_COORDINATOR = FOLDER / "prometheus" / "scrape-coordinator.yml"
WAYS = ("scrape.yml", "pod-monitor", "service-monitor", "exported-labels")
PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{names.NAMESPACE}/endpointslices"

HOLDER = {"namespace": "research", "pod": "train-0", "container": "main"}
"""Who has GPU 0 of the node a100-0; nobody has its GPU 6."""


@pytest.fixture(scope="module")
def cluster(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """With the operator's kinds, and a running pod for each agent of the fleet."""
    folder = tmp_path_factory.mktemp("plane")
    with Plane.start(folder, controller_manager=False) as plane:
        for file in sorted(binaries(PROMETHEUS).glob("*.yaml")):
            plane.kubectl("create", "-f", file)
        wait_until_served(plane, "crd", "--all")
        plane.account(names.NAMESPACE, names.AGENT)
        for node, port in fleet.ports.items():
            add_agent(plane, node, port)
        yield plane


def add_agent(plane: Plane, node: str, port: int) -> None:
    """An agent's pod as the DaemonSet makes it, but on loopback, and its end of the Service."""
    plane.make_node(node)
    template = copy.deepcopy(daemonset()["spec"]["template"])
    # of no use where nothing is run, and it would have to be there
    del template["spec"]["runtimeClassName"]
    made = add_pod(plane, template, f"agent-{node}", node, port)
    plane.demand("POST", SLICES, end_of_service(made, names.AGENT, "metrics", port))


def add_pod(plane: Plane, template: Object, name: str, node: str, port: int) -> Object:
    """A running pod of this template on loopback."""
    template["metadata"]["name"] = name
    template["spec"]["nodeName"] = node
    template["spec"]["containers"][0]["ports"][0]["containerPort"] = port
    made = plane.demand("POST", PODS, template)
    status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    plane.demand("PATCH", f"{PODS}/{name}/status", {"status": status}, content_type=MERGE_PATCH)
    return made


def end_of_service(pod: Object, service: str, port_name: str, port: int) -> Object:
    """The API server takes no loopback address here: see ``on_loopback``."""
    meta = pod["metadata"]
    node = pod["spec"]["nodeName"]
    target = {key: meta[key] for key in ("name", "namespace", "uid")} | {"kind": "Pod"}
    return {
        "metadata": {
            "name": meta["name"],
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"], "targetRef": target, "nodeName": node}],
        "ports": [{"name": port_name, "port": port}],
    }


def job(plane: Plane, way: str, folder: Path) -> Config:
    """The job by which Prometheus finds the agents, with the way to the API server."""
    if way.endswith(".yml"):
        (found,) = yaml.safe_load((SCRAPE.parent / way).read_text())["scrape_configs"]
    else:
        found = scrape_config(monitor(plane, way, folder))
    found["kubernetes_sd_configs"][0]["kubeconfig_file"] = str(plane.kubeconfig())
    found |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    of_service = found["kubernetes_sd_configs"][0]["role"] == "endpointslice"
    return on_loopback(found) if of_service else found


def monitor(plane: Plane, way: str, folder: Path) -> Mapping[str, Any]:
    """As kustomize makes it."""
    if way == "exported-labels":
        (folder / "monitoring").symlink_to(FOLDER)
        wanted = {
            "resources": ["monitoring/pod-monitor"],
            "components": ["monitoring/exported-labels"],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    made = plane.kubectl("kustomize", folder if way == "exported-labels" else FOLDER / way)
    (found,) = (it for it in yaml.safe_load_all(made) if it["kind"].endswith("Monitor"))
    return dict(found)


def on_loopback(config: Config) -> Config:
    """The same with each target's port on loopback, where the fleet is."""
    port = ["__meta_kubernetes_endpointslice_port"]
    step = {"source_labels": port, "target_label": "__address__", "replacement": "127.0.0.1:$1"}
    return {**config, "relabel_configs": [*config["relabel_configs"], step]}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_api_server_takes_every_object_with_nothing_it_does_not_know(
    cluster: Plane, folder: str
) -> None:
    cluster.kubectl("apply", "--validate=strict", "-k", FOLDER / folder)


@pytest.mark.parametrize("way", WAYS)
def test_agents_are_found_and_targets_have_the_node_s_name_alone(
    cluster: Plane, fleet: Fleet, tmp_path: Path, way: str
) -> None:
    """So what series say of namespace, pod and container is theirs, or nothing."""
    cluster.kubectl("apply", "-k", FOLDER / "service-monitor")

    with real.running(tmp_path, real.configuration([job(cluster, way, tmp_path)])) as prometheus:
        prometheus.wait_for(f"count(up == 1) == {len(fleet.ports)}")
        targets = [dict(it.labels) for it in prometheus.query("up")]
        (held,) = prometheus.query('DCGM_FI_DEV_GPU_TEMP{instance="a100-0", gpu="0"}')
        (free,) = prometheus.query('DCGM_FI_DEV_GPU_TEMP{instance="a100-0", gpu="6"}')

    own = {"__name__": "up", "job": "gpuscape"}
    assert sorted(targets, key=str) == sorted(
        ({**own, "instance": node} for node in fleet.ports), key=str
    )
    assert held.labels.items() >= HOLDER.items()
    assert free.labels.keys().isdisjoint(HOLDER)
    also = {f"exported_{name}": value for name, value in HOLDER.items()}
    found = {name: held.labels[name] for name in held.labels if name.startswith("exported_")}
    assert found == (also if way == "exported-labels" else {})


@pytest.fixture(scope="module")
def extender(cluster: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[bytes]:
    """A replica of the scheduler extender in the cluster, by TLS; the authority to trust."""
    folder = tmp_path_factory.mktemp("extender")
    trusted = authority()
    issued(trusted, "server", [x509.DNSName(SERVICE)]).write(folder)
    (folder / "ca.crt").write_bytes(trusted.pem)
    tls = ServerTls(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
    cluster.kubectl("apply", "-f", DEPLOY / "scheduler" / "service.yaml")
    cluster.account(names.NAMESPACE, names.SCHEDULER)
    cluster.make_node("worker-0")
    with served(ClientTerms(tls=tls, needs_certificate=True)) as running:
        template = copy.deepcopy(deployment("scheduler")["spec"]["template"])
        made = add_pod(cluster, template, EXTENDER, "worker-0", running.port)
        cluster.demand("POST", SLICES, end_of_service(made, names.SCHEDULER, "https", running.port))
        yield trusted.pem


@pytest.mark.parametrize("way", ["scrape-scheduler.yml", "scheduler-monitor"])
def test_the_scheduler_extender_is_found_trusted_and_no_agent(
    cluster: Plane, extender: bytes, tmp_path: Path, way: str
) -> None:
    """Its certificate is for the Service's name, whatever the address; its job is its own."""
    found = job(cluster, way, tmp_path)
    file = tmp_path / found["tls_config"]["ca_file"]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(extender)
    assert file.parent.name == (SECRETS["server"] if way == "scheduler-monitor" else tmp_path.name)

    with real.running(tmp_path, real.configuration([found])) as prometheus:
        (up,) = prometheus.wait_for("up == 1")
        (end,) = prometheus.wait_for(
            'gpuscape_scheduler_certificate_expiry_timestamp_seconds{certificate="server"}'
        )

    own = {"job": "gpuscape-scheduler", "instance": EXTENDER}
    assert dict(up.labels) == {"__name__": "up", **own}
    assert end.labels.items() >= own.items()


@pytest.fixture(scope="module")
def coordinator(cluster: Plane, fleet: Fleet) -> None:
    """A replica of the coordinator, as its Deployment makes it."""
    cluster.account(names.NAMESPACE, names.COORDINATOR)
    cluster.make_node("worker-1")
    template = copy.deepcopy(deployment("coordinator")["spec"]["template"])
    template["spec"].pop("priorityClassName")  # of no use here, and it would have to be there
    add_pod(cluster, template, COORDINATOR, "worker-1", fleet.coordinator)


@pytest.mark.usefixtures("coordinator")
@pytest.mark.parametrize("way", ["scrape-coordinator.yml", "coordinator-monitor"])
def test_the_coordinator_is_found_under_its_own_job(
    cluster: Plane, tmp_path: Path, way: str
) -> None:
    """Rules ask for the job; no agent and no scheduler extender is in it."""
    config = real.configuration([job(cluster, way, tmp_path)])
    with real.running(tmp_path, config) as prometheus:
        prometheus.wait_for("up == 1")
        (leads,) = prometheus.wait_for("gpuscape_coordinator_leader")
        (up,) = prometheus.query("up")

    own = {"job": "gpuscape-coordinator", "instance": COORDINATOR}
    assert dict(up.labels) == {"__name__": "up", **own}
    assert dict(leads.labels) == {"__name__": "gpuscape_coordinator_leader", **own}


@pytest.mark.parametrize("at", range(len(page.kustomizations())))
def test_every_kustomization_on_the_page_is_taken(cluster: Plane, at: int, tmp_path: Path) -> None:
    (tmp_path / "gpuscape").symlink_to(FOLDER.parents[1])
    (tmp_path / "kustomization.yaml").write_text(page.kustomizations()[at])

    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", tmp_path)


def test_promtool_finds_nothing_in_a_configuration_that_names_the_files(tmp_path: Path) -> None:
    """As on the page."""
    (tmp_path / "ca.crt").write_bytes(authority().pem)
    for file in (SCRAPE, SCRAPE_SCHEDULER, SCRAPE_COORDINATOR, RULES):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "prometheus.yml").write_text(page.configuration())

    assert promtool.check_config(tmp_path / "prometheus.yml") == []
