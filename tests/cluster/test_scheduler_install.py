# SPDX-License-Identifier: Apache-2.0
"""What docs/scheduler.md tells an admin to do, done."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from tests.agent.agent_process import until
from tests.cluster.certificates import SECRETS
from tests.cluster.extender import Extender, extender
from tests.cluster.front import Front, silent
from tests.cluster.scheduling import ACCOUNT, GPU, Stage, configuration, mounted, run, tls
from tests.controlplane.families import MINORS
from tests.deploy import scheduler_page
from tests.deploy.deployments import deployment

pytestmark = pytest.mark.cluster

ADDRESS = "https://10.96.0.77"
"""The Service's, on the page."""
EXISTING = "default-scheduler"
TIMEOUT = "30s"
"""In place of the shipped one, so that calls come whole however busy the machine is."""


@pytest.fixture(scope="module", params=MINORS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with Stage.running(tmp_path_factory.mktemp("stage"), request.param) as made:
        for number in range(2):
            made.plane.make_node(f"node-{number}", capacity={GPU: "100"})
        yield made


@pytest.fixture
def front(stage: Stage) -> Iterator[Front]:
    made = Front(stage.server, silent)
    with made.serving():
        yield made


@pytest.mark.parametrize("part", ["scheduler", "kube-scheduler", "certificates"])
def test_the_pods_are_taken_by_the_strictest_pod_security(stage: Stage, part: str) -> None:
    template = deployment(part)["spec"]["template"]
    pod = {"metadata": {**template["metadata"], "generateName": "pod-"}, "spec": template["spec"]}
    strict = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = stage.plane.namespace("strict", labels=strict)
    stage.plane.account(namespace, template["spec"]["serviceAccountName"])

    answer = stage.plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    assert answer.status == http.client.CREATED, answer.body


def test_the_shipped_scheduler_leads_by_its_own_lease_and_places_pods(
    stage: Stage, front: Front
) -> None:
    stage.start_scheduler(configuration(front.address, stage.client, timeout=TIMEOUT))
    pod = stage.add_pod(1)

    assert stage.placed(pod).startswith("node-")
    assert front.called_for(pod)
    path = "/apis/coordination.k8s.io/v1/namespaces/gpuscape/leases/kube-scheduler"
    assert stage.plane.demand("GET", path)["spec"]["holderIdentity"]
    stage.plane.programs.stop(ACCOUNT)


def test_the_pages_section_is_all_that_another_scheduler_needs_and_no_name_is_resolved(
    stage: Stage, front: Front
) -> None:
    page = yaml.safe_load(scheduler_page.marked("extenders"))
    (section,) = page["extenders"]
    files = tls(stage.client)
    assert section["tlsConfig"].keys() == files.keys()
    assert section["urlPrefix"].startswith(f"{ADDRESS}/")
    section["urlPrefix"] = section["urlPrefix"].replace(ADDRESS, front.address)
    section["tlsConfig"] |= {name: files[name] for name in ("caFile", "certFile", "keyFile")}

    section["httpTimeout"] = TIMEOUT
    stage.start_scheduler({**page, "extenders": [section]}, EXISTING)
    pod = stage.add_pod(1, scheduler=EXISTING)

    assert stage.placed(pod).startswith("node-")
    assert front.called_for(pod)
    stage.plane.programs.stop(EXISTING)


def test_certificates_made_by_hand_are_renewed_without_a_restart(
    stage: Stage, tmp_path: Path
) -> None:
    """By the page's commands; the extender takes new ones within seconds, kube-scheduler on its
    next connection."""
    made = by_hand(stage, tmp_path / "admin")
    front = Front(made.server, silent)
    with front.serving(), extender(made, tmp_path) as helper:
        settings = configuration(front.address, made.client, profile="renewed", timeout=TIMEOUT)
        stage.start_scheduler(settings, "renewed")
        stage.placed(stage.add_pod(1, scheduler="renewed"))
        before = served(helper), front.clients[-1]

        renew(made)
        until(lambda: served(helper) != before[0])
        front.answer = lambda _path, _body: None  # the connection ends with that
        stage.placed(stage.add_pod(1, scheduler="renewed"))
        pods = [stage.add_pod(1, scheduler="renewed") for _ in range(2)]

        assert {stage.placed(pod)[:5] for pod in pods} == {"node-"}
        assert front.clients[-1] != before[1]
        assert front.clients[-1] == serial(made.client.certificate.read_bytes())
    stage.plane.programs.stop("renewed")


DELETE = f"kubectl -n gpuscape delete secret {' '.join(SECRETS.values())}"


def by_hand(stage: Stage, folder: Path) -> Stage:
    """The same with certificates that the page's commands made, without those of the program."""
    folder.mkdir()
    run(stage.plane, f"{DELETE}\n{scheduler_page.marked('certificates')}", folder)
    server, client = (mounted(stage.plane, name, folder / side) for side, name in SECRETS.items())
    return replace(stage, admin=folder, server=server, client=client)


def renew(stage: Stage) -> None:
    """New certificates of the same authority, as the page says, in the files that are mounted."""
    commands = scheduler_page.marked("certificates").splitlines()
    kept = [line for line in commands if not line.startswith("openssl req -x509")]
    at = next(number for number, line in enumerate(kept) if line.startswith("kubectl"))
    run(stage.plane, "\n".join([*kept[:at], DELETE, *kept[at:]]), stage.admin)
    for side, name in SECRETS.items():
        mounted(stage.plane, name, stage.admin / side)


def served(helper: Extender) -> int:
    """Serial number of the certificate that the extender shows."""
    return serial(ssl.get_server_certificate(("127.0.0.1", helper.port)).encode())


def serial(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number
