# SPDX-License-Identifier: Apache-2.0
"""The program that makes certificates, on real API servers, and real kube-schedulers that use them.

The extender and kube-scheduler read files, as the kubelet mounts them; a file is written again
where the kubelet would.
"""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from api import names
from scheduler.certificates import key_pairs, renewal
from scheduler.certificates.key_pairs import KeyPair
from tests.agent.agent_process import until
from tests.cluster.certificates import SECRETS, CertificateProgram, certificates
from tests.cluster.extender import Extender, extender
from tests.cluster.front import Keys
from tests.cluster.scheduling import GPU, Stage, configuration, mounted, run
from tests.controlplane.server import MERGE_PATCH
from tests.controlplane.versions import VERSIONS
from tests.deploy import scheduler_page
from tests.deploy.daemonset import DEPLOY

pytestmark = pytest.mark.cluster

TIMEOUT = "30s"
"""In place of the shipped one, so that answers are waited for however busy the machine is."""
_PLACE = f"/api/v1/namespaces/{names.NAMESPACE}/secrets"


@pytest.fixture(scope="module", params=VERSIONS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with Stage.running(tmp_path_factory.mktemp("stage"), request.param) as made:
        for number in range(2):
            made.plane.make_node(f"node-{number}", capacity={GPU: "100"})
        yield made


def held(stage: Stage, secret: str) -> dict[str, bytes]:
    """What a Secret holds."""
    data = stage.plane.demand("GET", f"{_PLACE}/{secret}").get("data") or {}
    return {key: base64.b64decode(text) for key, text in data.items()}


def write(stage: Stage, secret: str, data: dict[str, bytes] | None) -> None:
    """Some of it as an admin writes it; None: all is taken out."""
    encoded = None
    if data is not None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    path = f"{_PLACE}/{secret}"
    stage.plane.demand("PATCH", path, {"data": encoded}, content_type=MERGE_PATCH)


def empty(stage: Stage) -> None:
    """All Secrets as they are shipped."""
    for secret in (names.SCHEDULER_CA, *SECRETS.values()):
        write(stage, secret, None)


def authorities(stage: Stage) -> tuple[KeyPair, ...]:
    """What the authority's Secret holds."""
    return renewal.signing(held(stage, names.SCHEDULER_CA), datetime.now(UTC))


def mount(stage: Stage) -> None:
    """Write both sides' files again, as the kubelet does after a while."""
    for side, name in SECRETS.items():
        mounted(stage.plane, name, stage.admin / side)


def calls(helper: Extender) -> int:
    """How often the extender was asked for scores, and answered."""
    text = helper.ask("GET", "/metrics")[1].decode()
    found = re.findall(r'^gpuscape_scheduler_requests_total\{.*"prioritize".*\} (\S+)$', text, re.M)
    return int(sum(map(float, found)))


def test_three_that_start_at_once_agree_and_others_find_nothing_to_do(
    stage: Stage, tmp_path: Path
) -> None:
    empty(stage)
    made = [CertificateProgram(stage.plane, stage.node, tmp_path) for _ in range(3)]
    try:
        for one in made:
            one.until_ready()
        (authority,) = authorities(stage)
        for secret in SECRETS.values():
            assert key_pairs.pem_certificates(held(stage, secret)["ca.crt"]) == (
                authority.certificate,
            )
        before = {secret: held(stage, secret) for secret in SECRETS.values()}
        with certificates(stage.plane, stage.node, tmp_path):
            assert {secret: held(stage, secret) for secret in SECRETS.values()} == before
    finally:
        statuses = [one.end() for one in made]
    assert statuses == [0, 0, 0]
    assert "PRIVATE" not in "".join(one.said for one in made)


def test_manifests_that_are_applied_again_change_nothing_and_bring_back_what_was_deleted(
    stage: Stage, tmp_path: Path
) -> None:
    """With the authority that was, so that no kube-scheduler has to be started again."""
    every = (names.SCHEDULER_CA, *SECRETS.values())
    with certificates(stage.plane, stage.node, tmp_path) as program:
        before = {secret: held(stage, secret) for secret in every}
        stage.plane.kubectl("apply", "-k", DEPLOY / "certificates")
        assert {secret: held(stage, secret) for secret in every} == before

        stage.plane.kubectl("-n", names.NAMESPACE, "delete", "secret", *every)
        until(lambda: "Secret missing" in program.said)
        until(lambda: not program.is_ready())  # it is logged a moment sooner
        stage.plane.kubectl("apply", "-k", DEPLOY / "certificates")
        until(program.is_ready)

        assert held(stage, names.SCHEDULER_CA) == before[names.SCHEDULER_CA]
    mount(stage)


def test_an_authority_is_replaced_at_once_by_the_pages_commands(
    stage: Stage, tmp_path: Path
) -> None:
    """Those that empty the Secrets: here no controller stops and starts pods."""
    lines = scheduler_page.marked("new authority").splitlines()
    loop = "\n".join(lines[lines.index("done") - 2 : lines.index("done") + 1])
    assert loop.startswith("for secret in ")
    with certificates(stage.plane, stage.node, tmp_path):
        (before, *_) = authorities(stage)

    run(stage.plane, loop, tmp_path / "admin")
    with certificates(stage.plane, stage.node, tmp_path):
        (after,) = authorities(stage)

    assert after.certificate != before.certificate
    for secret in SECRETS.values():
        assert key_pairs.pem_certificates(held(stage, secret)["ca.crt"]) == (after.certificate,)
    mount(stage)


def started(stage: Stage, helper: Extender, profile: str, client: Keys) -> None:
    """A kube-scheduler with a profile of this name and these files."""
    settings = configuration(helper.address, client, profile=profile, leads=False, timeout=TIMEOUT)
    stage.start_scheduler(settings, profile)


def asks(stage: Stage, helper: Extender, profile: str) -> bool:
    """Whether its kube-scheduler asks the extender about a new pod; it is placed in any case."""
    before = calls(helper)
    assert stage.placed(stage.add_pod(1, scheduler=profile)).startswith("node-")
    return calls(helper) > before


def test_kube_scheduler_is_served_from_one_authority_to_the_next(
    stage: Stage, tmp_path: Path
) -> None:
    """One that started before the successor was announced is not, and places pods all the same."""
    old = key_pairs.authority(
        "old", datetime.now(UTC) - renewal.AUTHORITY_LIFE * 0.7, renewal.AUTHORITY_LIFE
    )
    empty(stage)
    write(stage, names.SCHEDULER_CA, {"ca.crt": old.certificate.pem, "ca.key": old.key_pem})
    with certificates(stage.plane, stage.node, tmp_path):
        mount(stage)
    assert [it.certificate for it in authorities(stage)][:1] == [old.certificate]
    (_, new) = authorities(stage)
    early = tmp_path / "early"
    early.mkdir()
    (early / "ca.crt").write_bytes(old.certificate.pem)
    with contextlib.ExitStack() as running:
        helper = running.enter_context(extender(stage, tmp_path))
        for profile, client in (
            ("early", replace(stage.client, authority=early / "ca.crt")),
            ("late", stage.client),
        ):
            started(stage, helper, profile, client)
            running.callback(stage.plane.programs.stop, profile)
            assert asks(stage, helper, profile)

        pair = {"ca.crt": new.certificate.pem, "ca.key": new.key_pem}
        write(stage, names.SCHEDULER_CA, pair)
        for secret in SECRETS.values():
            write(stage, secret, {"tls.crt": b"", "tls.key": b""})
        with certificates(stage.plane, stage.node, tmp_path):
            mount(stage)
        until(lambda: shown(helper).is_signed_by(new.certificate))
        assert asks(stage, helper, "late")
        helper.kill()  # connections end, as when its pods move
        helper.start_again()

        assert asks(stage, helper, "late")
        assert not asks(stage, helper, "early")
        stage.plane.programs.stop("early")
        started(stage, helper, "early", stage.client)
        assert asks(stage, helper, "early")


def is_new(helper: Extender, before: key_pairs.Certificate) -> bool:
    """Whether the extender shows another certificate by now."""
    return shown(helper) != before


def shown(helper: Extender) -> key_pairs.Certificate:
    """The certificate that the extender shows."""
    pem = ssl.get_server_certificate(("127.0.0.1", helper.port)).encode()
    return key_pairs.pem_certificates(pem)[0]


def test_no_pod_is_placed_without_the_extender_while_certificates_are_renewed(
    stage: Stage, tmp_path: Path
) -> None:
    """By the same authority, one side after the other, five times."""
    empty(stage)
    with certificates(stage.plane, stage.node, tmp_path):
        mount(stage)
    with extender(stage, tmp_path) as helper:
        started(stage, helper, "renewed", stage.client)
        assert asks(stage, helper, "renewed")
        authority = authorities(stage)
        for _ in range(5):
            before = shown(helper)
            for secret in SECRETS.values():
                write(stage, secret, {"tls.crt": b"", "tls.key": b""})
            with certificates(stage.plane, stage.node, tmp_path):
                for side, name in SECRETS.items():
                    mounted(stage.plane, name, stage.admin / side)
                    assert asks(stage, helper, "renewed")
            until(partial(is_new, helper, before))
            assert asks(stage, helper, "renewed")
        assert authorities(stage) == authority
        stage.plane.programs.stop("renewed")


def test_the_alerts_metric_shows_the_ends_that_the_program_chose(
    stage: Stage, tmp_path: Path
) -> None:
    with certificates(stage.plane, stage.node, tmp_path):
        mount(stage)
    with extender(stage, tmp_path) as helper:
        text = helper.ask("GET", "/metrics")[1].decode()
    name = "gpuscape_scheduler_certificate_expiry_timestamp_seconds"
    ends = {
        which: datetime.fromtimestamp(float(at), UTC)
        for which, at in re.findall(rf'^{name}{{certificate="(\w+)"}} (\S+)$', text, re.M)
    }

    assert ends.keys() >= {"server", "client_authority"}
    assert min(ends.values()) > datetime.now(UTC) + timedelta(days=31)
    assert (
        ends["server"]
        == key_pairs.pem_certificates(held(stage, SECRETS["server"])["tls.crt"])[0].ends
    )
