# SPDX-License-Identifier: Apache-2.0
"""Draining a node on a real API server, with the coordinator's own account, roles and policies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from api import names
from api.mig_request_annotation import MigRequestAnnotation
from api.state_annotation import pod_key
from fleet.drain.drain_plan import DrainPlan, DrainSettings
from fleet.drain.drain_view import evaluate_drain
from kube.client import ApiClient
from tests.cluster.agents import Site
from tests.kube.clusters import Real, client
from tools.access.files import parts_of, text

pytestmark = pytest.mark.cluster

TERMS = DrainSettings(allow_unmanaged=True)
"""The test's pods have no controller, which would make others."""
APP = {"app": "a"}


@dataclass
class Scene:
    """A node's pods in a namespace of their own, and the coordinator."""

    site: Site
    api: ApiClient
    admin: ApiClient
    namespace: str = ""
    node: str = ""
    uids: dict[str, str] = field(default_factory=dict)
    since: int = 0

    def __post_init__(self) -> None:
        self.namespace = self.site.plane.namespace("team")
        self.node = self.site.plane.make_node()
        self.since = self.site.plane.mark()

    @property
    def people(self) -> Real:
        return Real(plane=self.site.plane, api=self.admin, other=self.admin)

    def run_pods(self, *pods: str, grace: int = 30) -> None:
        """Have pods that run and are ready."""
        for pod in pods:
            self.uids[pod] = self.people.run(pod, self.namespace, self.node, APP, grace)

    def judged(self, *in_the_way: str) -> DrainPlan:
        """The coordinator's plan for a request that names these pods."""
        others = [pod for pod in self.uids if pod not in in_the_way]
        request = MigRequestAnnotation(
            v=2,
            request="00112233445566aa",
            plan="00112233445566aa",
            gpus=(0,),
            pods=tuple(pod_key(self.namespace, pod) for pod in in_the_way),
            other_pods=tuple(pod_key(self.namespace, pod) for pod in others),
        )
        pods = [(self.namespace, pod) for pod in self.uids]
        return evaluate_drain(self.api, pods, request, TERMS)

    def written(self) -> list[tuple[str, str, bool]]:
        """Verb, pod and whether it was a dry run, of all that the coordinator wrote to pods."""
        account = names.username(names.COORDINATOR, self.site.namespace)
        return [
            (
                event["verb"],
                event["objectRef"]["name"],
                "dryRun=All" in event["requestURI"],
            )
            for event in self.site.plane.audit(since=self.since)
            if event["user"]["username"] == account
            and event["objectRef"]["resource"] == "pods"
            and event["verb"] not in ("get", "list", "watch")
            and event["objectRef"].get("namespace") == self.namespace
        ]


@pytest.fixture(scope="module")
def coordinator(site: Site) -> Iterator[ApiClient]:
    """A client with the token of the coordinator's pod."""
    part = text(parts_of(site.namespace)["coordinator"])
    site.plane.account(site.namespace, names.COORDINATOR)
    site.plane.kubectl("apply", "-f", "-", stdin=part)
    node = site.plane.make_node()
    token = site.plane.bound_token(site.namespace, names.COORDINATOR, node)
    with contextlib.closing(client(names.COORDINATOR, site.plane.kubeconfig(token=token))) as api:
        yield api


@pytest.fixture
def scene(site: Site, coordinator: ApiClient) -> Iterator[Scene]:
    with contextlib.closing(client("kubectl", site.plane.kubeconfig())) as admin:
        yield Scene(site=site, api=coordinator, admin=admin)


def test_none_is_evicted_where_one_budget_lets_one_of_two_go(scene: Scene) -> None:
    scene.run_pods("a", "b", "c")
    scene.people.budget("one-stays", scene.namespace, APP, 1)

    plan = scene.judged("a", "b")

    assert [(it.kind.value, it.name) for it in plan.blockers] == [
        ("disruption-budget", f"{scene.namespace}/one-stays")
    ]
    assert (plan.evict, scene.written()) == ((), [])
    assert [each.meta.name for each in scene.judged("a").evict] == ["a"]


def test_two_budgets_on_one_pod_keep_all(scene: Scene) -> None:
    scene.run_pods("a", "b")
    scene.people.budget("one", scene.namespace, APP, 5)
    scene.people.budget("two", scene.namespace, APP, 5)

    assert {it.kind.value for it in scene.judged("a", "b").blockers} == {
        "several-disruption-budgets"
    }
