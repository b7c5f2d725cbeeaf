# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig why`` and ``cancel`` in each phase of a change, on a real API server.

The coordinator runs as a program, the shipped policies hold everybody, and the commands have the
rights that docs/mig-fleet.md names and no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from api import keys, names
from cli.main import main
from kube.lease import micro_time
from tests.agent.agent_process import until
from tests.cluster.agents import Site
from tests.cluster.mig_nodes import (
    NodeModel,
    coordinator_process,
    install_coordinator,
    modelled_nodes,
    slots_in_use,
    working,
)
from tests.cluster.test_called_off import GUARD, condition, held_by, phase_is
from tests.controlplane.plane import MERGE_PATCH
from tests.forecast.test_agent_terms import coordinator
from tests.pages import ROOT

pytestmark = pytest.mark.cluster

PERSON: Final = "mig-admin"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


def rights_of_the_page() -> list[dict[str, Any]]:
    """The role that docs/mig-fleet.md gives for both commands."""
    page = (ROOT / "docs" / "mig-fleet.md").read_text("utf-8")
    section = page.partition("### Rights for both commands")[2]
    rules = []
    for line in re.findall(r"^\| `([a-z, ]+)` \| `([a-z0-9.]+)` \|", section, re.M):
        verbs, resource = line
        plural, _, group = resource.partition(".")
        rules.append({"apiGroups": [group], "resources": [plural], "verbs": verbs.split(", ")})
    assert len(rules) >= 6
    return rules


class Person:
    """Whoever runs the commands, with the rights of the page."""

    def __init__(self, site: Site) -> None:
        plane, group = site.plane, "rbac.authorization.k8s.io"
        subject = {"apiGroup": group, "kind": "User", "name": PERSON}
        role = {"apiGroup": group, "kind": "ClusterRole", "name": PERSON}
        for kind, body in (
            ("clusterroles", {"rules": rights_of_the_page()}),
            ("clusterrolebindings", {"subjects": [subject], "roleRef": role}),
        ):
            made = {"metadata": {"name": PERSON}, **body}
            plane.demand("POST", f"/apis/{group}/v1/{kind}", made)
        self.kubeconfig = str(plane.kubeconfig(PERSON))
        self.namespace = site.namespace

    def run(self, *words: str, code: int = 0) -> str:
        """What a command prints."""
        place = ("-n", self.namespace, "--kubeconfig", self.kubeconfig)
        result = CliRunner().invoke(main, ("mig", *words, *place))
        assert result.exit_code == code, result.output
        return result.output

    def why(self, node: str) -> dict[str, Any]:
        """The story as data, of which nothing may be unread."""
        found: dict[str, Any] = json.loads(self.run("why", node, "-o", "json"))
        assert found["unread"] == []
        return found


def renew(site: Site, lease: str, *, ago: float = 0.0) -> None:
    """Somebody has renewed it so long ago; it is made where there is none."""
    path = _LEASES.format(site.namespace)
    at = datetime.fromtimestamp(datetime.now(UTC).timestamp() - ago, UTC)
    duration = 15 if lease == names.COORDINATOR_LEASE else 180
    spec = {"spec": {"renewTime": micro_time(at), "leaseDurationSeconds": duration}}
    if site.plane.request("GET", f"{path}/{lease}").status != 200:
        body = {"metadata": {"name": lease}, "spec": {**spec["spec"], "holderIdentity": "pod"}}
        site.plane.demand("POST", path, body)
        return
    site.plane.demand("PATCH", f"{path}/{lease}", spec, content_type=MERGE_PATCH)


@contextmanager
def node_of(site: Site, name: str, *, works: bool = True) -> Iterator[tuple[NodeModel, Any]]:
    """A node, and its condition before a layout was desired."""
    install_coordinator(site)
    (model,) = modelled_nodes(site, 1, name)
    site.edit(model.name, annotations=GUARD)
    before = condition(site, model.name)
    del before["annotations"][keys.MIG_LAYOUT]
    renew(site, names.agent_lease(model.name))
    mark = site.plane.mark()
    try:
        if works:
            with working([model]):
                yield model, before
        else:
            yield model, before
    finally:
        site.plane.demand("DELETE", f"/api/v1/nodes/{model.name}")
    for user in (names.username(names.COORDINATOR, site.namespace), PERSON):
        events = site.plane.audit(since=mark, user=user)
        assert [it for it in events if it["responseStatus"]["code"] in (403, 422)] == []


@pytest.fixture(scope="module")
def person(site: Site) -> Person:
    """With the coordinator's Deployment, which no controller here runs, for its settings."""
    made = coordinator("--settle=60s", "--device-plugins=app=device-plugin")
    made["metadata"]["namespace"] = site.namespace
    site.plane.demand("POST", f"/apis/apps/v1/namespaces/{site.namespace}/deployments", made)
    return Person(site)


def test_before_the_request(site: Site, person: Person) -> None:
    with node_of(site, "early", works=False) as (model, before):
        assert person.why(model.name)["stands_at"] == "evaluated"
        assert "Cancelled: " in person.run("cancel", model.name)
        assert condition(site, model.name) == before


def test_while_it_waits_for_a_pod(site: Site, person: Person, tmp_path: Path) -> None:
    with node_of(site, "waits") as (model, before), coordinator_process(site, "c", tmp_path):
        model.hold("job")

        def story() -> dict[str, Any]:
            stages = person.why(model.name)["stages"]
            return dict(next((it for it in stages if it["state"] == "now"), {"stage": None}))

        def pods() -> list[str]:
            found = story().get("in_the_way") or ()
            return [it["name"] for it in found if it["kind"] == "pod"]

        until(lambda: pods() == [f"{model.namespace}/job"])
        assert story()["stage"] == "slot"
        person.run("cancel", model.name)
        assert model.is_cancelled
        assert condition(site, model.name) == before
        assert person.why(model.name)["stands_at"] == "desired"


@pytest.mark.parametrize("agent", ["runs", "is away"])
def test_behind_the_cordon(site: Site, person: Person, tmp_path: Path, agent: str) -> None:
    name = f"held-{agent.replace(' ', '-')}"
    with node_of(site, name) as (model, before), held_by(site, name, tmp_path):
        until(lambda: phase_is(site, model.name, "cordoned"))

        def done_at(stage: str) -> str | None:
            found = person.why(model.name)
            assert found["stands_at"] == "drained"
            at: str | None = next(it["done_at"] for it in found["stages"] if it["stage"] == stage)
            return at

        until(lambda: done_at("cordoned") is not None)  # the record has it a moment later
        assert done_at("slot") is not None
        if agent == "is away":
            model.is_away = True
            renew(site, names.agent_lease(model.name), ago=1000)
        text = person.run("cancel", model.name)
        assert "  cordon" in text
        assert condition(site, model.name) == before
        assert not slots_in_use(site)


def test_while_the_gpus_are_changed(site: Site, person: Person, tmp_path: Path) -> None:
    with node_of(site, "begun") as (model, before), coordinator_process(site, "c", tmp_path):
        model.may_end.clear()
        until(lambda: phase_is(site, model.name, "proceed"))
        until(lambda: model.is_changing)
        assert person.why(model.name)["stands_at"] == "changed"
        text = person.run("cancel", model.name, "--timeout", "2", code=1)
        assert "goes on to its end" in text
        assert condition(site, model.name)["cordoned"]
        model.may_end.set()
        person.run("cancel", model.name, code=0 if model.is_done else 1)
        until(lambda: condition(site, model.name) == before)
        assert model.is_done


def test_where_no_coordinator_acts(site: Site, person: Person, tmp_path: Path) -> None:
    with node_of(site, "alone") as (model, before):
        with held_by(site, "gone", tmp_path):
            until(lambda: phase_is(site, model.name, "cordoned"))
        renew(site, names.COORDINATOR_LEASE, ago=1000)
        stage = next(it for it in person.why(model.name)["stages"] if it["state"] == "now")
        assert stage["in_the_way"][0]["kind"] == "coordinator"
        text = person.run("cancel", model.name)
        assert "the next coordinator frees mig-slot-0" in text
        assert condition(site, model.name) == before
        with held_by(site, "next", tmp_path):
            until(lambda: not slots_in_use(site), 90)
            assert condition(site, model.name) == before
