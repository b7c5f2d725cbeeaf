# SPDX-License-Identifier: Apache-2.0
"""A second installation in the cluster: what it disturbs in the first one's MIG changes, and what
finds it. On real API servers, with the first coordinator's real token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent.cluster.confinement import PolicyVerdict, permit_trial, tried
from api import names
from diagnosis.facts.remote_node_facts import read_remote_node
from kube.client import ApiClient, Program
from kube.credentials import find
from tests.access import foreign
from tests.access.ask import Case, annotation, label, merge
from tests.access.node_cases import NODE
from tests.access.other_cases import PERMIT
from tests.access.permit_cases import CORDONED, PERMITTED, UNDONE
from tests.access.stage import ENFORCED_SECONDS, Roles, Stage
from tests.agent.agent_process import until
from tests.controlplane.plane import Plane
from tools.access import cel
from tools.access.files import POLICIES
from tools.access.policy import EVERYBODY, KUBELETS, Policy, Rule

pytestmark = pytest.mark.cluster

LABELS_ONLY = (*POLICIES[names.AGENT], *POLICIES[KUBELETS])
"""What deploy/base has."""
WITH_A_COORDINATOR = (*POLICIES[names.COORDINATOR], *POLICIES[EVERYBODY])
LAST_KEY = "example.com/last"
LAST = Policy(
    name="last",
    holder=foreign.ACCOUNT,
    group="",
    resources=("nodes",),
    operations=("UPDATE",),
    rules=(
        Rule(
            name="last",
            holds=f"!({cel.quoted(LAST_KEY)} in object.metadata.?labels.orValue({{}}))",
            message="the policies from before are in force",
        ),
    ),
)
"""The API server takes up all policies that it knows at once, so this one shows the others."""
CORDON = Case(name="cordon", ask=merge(NODE, PERMITTED), actor="coordinator")
UNDO = Case(name="undo", ask=merge(NODE, UNDONE), actor="coordinator", before=(CORDONED,))
FORGED = Case(name="forged", ask=merge(NODE, annotation(PERMIT, "forged")), actor="foreign")


@contextmanager
def installed(plane: Plane) -> Iterator[Stage]:
    """The first one, whole."""
    stage = Stage(plane, Roles.SHIPPED)
    try:
        stage.wait_until_enforced()
        yield stage
    finally:
        stage.close()


@contextmanager
def second(stage: Stage, policies: Iterable[Policy]) -> Iterator[str]:
    """Another one in a namespace of its own, whose name it gives; its policies are in force."""
    policies, namespace = tuple(policies), stage.plane.namespace("access-second")
    try:
        stage.install(policies, namespace=namespace)
        stage.install([LAST])
        asked = Case(name="last", ask=merge(NODE, label(LAST_KEY)), actor="foreign")
        until(
            lambda: stage.answer(asked, dry_run=True, as_it_is=True).status == 422,
            ENFORCED_SECONDS,
        )
        yield namespace
    finally:
        stage.uninstall([LAST])
        stage.uninstall(policies, namespace=namespace)


def test_one_of_labels_alone_leaves_the_first_ones_changes_alone(any_plane: Plane) -> None:
    with installed(any_plane) as stage, second(stage, LABELS_ONLY):
        for case in (CORDON, UNDO):
            answer = stage.answer(case)
            assert answer.status == 200, answer.body
        assert stage.is_refusal(stage.answer(FORGED))


def test_of_two_coordinators_neither_permits_and_each_undoes_what_it_has_begun(
    any_plane: Plane,
) -> None:
    with installed(any_plane) as stage:
        began = stage.answer(CORDON)
        with second(stage, WITH_A_COORDINATOR) as namespace:
            undone = stage.answer(replace(UNDO, before=()), as_it_is=True)
            held = stage.answer(CORDON)

    assert (began.status, undone.status) == (200, 200), undone.body
    assert "unschedulable" not in undone.body["spec"]
    assert f"'{names.MIG_PERMIT}.{namespace}'" in str(held.body["message"])
    assert names.COORDINATOR in str(held.body["message"])


def client(stage: Stage, token: str | None) -> ApiClient:
    plane = stage.plane
    access = find(str(plane.kubeconfig() if token is None else plane.kubeconfig(token=token)))
    name = names.AGENT if token else "gpuscape-doctor"
    program = Program(name=name, version="0", requests_per_second=1000, burst=1000)
    return ApiClient(program, access)


def test_the_doctor_finds_the_other_one_by_its_namespace(plane: Plane) -> None:
    with installed(plane) as stage, second(stage, LABELS_ONLY) as namespace:
        api = client(stage, None)
        try:
            facts = read_remote_node(api, stage.node, stage.namespace)
        finally:
            api.close()

    assert isinstance(facts.other_namespaces, tuple)
    assert namespace in facts.other_namespaces
    assert stage.namespace not in facts.other_namespaces


WEAKER: Mapping[str, dict[str, Any]] = {
    "it only audits": {"validationActions": ["Audit"]},
    "it selects other Nodes": {
        "matchResources": {"objectSelector": {"matchLabels": {"example.com/none": "x"}}}
    },
    "it leaves out the resource": {
        "matchResources": {
            "excludeResourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["*"],
                    "resources": ["nodes"],
                }
            ]
        }
    },
}


@pytest.mark.parametrize("how", WEAKER)
def test_a_policy_on_permits_that_lets_a_forged_one_through_is_seen_by_agent_and_doctor(
    any_plane: Plane, how: str
) -> None:
    with installed(any_plane) as stage:
        agent, person = client(stage, stage.bound_token()), client(stage, None)
        try:

            def verdicts() -> list[PolicyVerdict]:
                seen = tried(agent, stage.node, stage.namespace, mig_permits=True).trials
                by_person = permit_trial(person, stage.node, stage.namespace)
                return [*(it.verdict for it in seen), by_person.verdict]

            refused = [PolicyVerdict.REFUSED] * 6
            until(lambda: verdicts() == refused, ENFORCED_SECONDS)

            stage.weaken(names.MIG_PERMIT, **WEAKER[how])

            opened = [*refused[:4], PolicyVerdict.OPEN, PolicyVerdict.OPEN]
            until(lambda: verdicts() == opened, ENFORCED_SECONDS)
            assert stage.answer(FORGED, dry_run=True).status == 200
        finally:
            agent.close()
            person.close()
