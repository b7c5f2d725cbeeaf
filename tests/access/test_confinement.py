# SPDX-License-Identifier: Apache-2.0
"""The agent's self-check on real API servers: confirmed where the policies hold, else named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agent.cluster.confinement import CORE, Confinement, ConfinementCheck, PolicyVerdict
from api import names
from kube.client import ApiClient, Program
from kube.credentials import find
from tests.access.ask import Case, label, merge
from tests.access.node_cases import NODE
from tests.access.stage import ENFORCED_SECONDS, Roles, Stage
from tests.controlplane.plane import Plane
from tools.access.files import POLICIES
from tools.access.policy import Policy, Rule

pytestmark = pytest.mark.cluster

AGENT = POLICIES[names.AGENT]
CHECKED = (*CORE, names.AGENT_EVENT, names.AGENT_NODE_FEATURE)


@contextmanager
def checked(
    plane: Plane, policies: Iterable[Policy] = AGENT, *, node: str | None = None
) -> Iterator[tuple[Stage, ConfinementCheck]]:
    """A stage with these policies and the check of an agent there, of its Node or another's."""
    stage = Stage(plane, Roles.SHIPPED, policies)
    kubeconfig = plane.kubeconfig(token=stage.bound_token())
    program = Program(name=names.AGENT, version="0", requests_per_second=1000, burst=1000)
    client = ApiClient(program, find(str(kubeconfig)))
    try:
        yield (
            stage,
            ConfinementCheck(
                client, node=node or stage.node, namespace=stage.namespace, node_features=True
            ),
        )
    finally:
        client.close()
        stage.close()


def seen(check: ConfinementCheck, holds: Callable[[Confinement], bool]) -> Confinement:
    """What the check shows as soon as this holds; what it shows at the deadline otherwise."""
    deadline = time.monotonic() + ENFORCED_SECONDS
    while True:
        check.check(0.0)
        assert check.last is not None
        if holds(check.last) or time.monotonic() > deadline:
            return check.last
        time.sleep(0.1)


def verdicts(confinement: Confinement, stage: Stage) -> dict[str, PolicyVerdict]:
    """By the policy's name in the default namespace."""
    return {
        trial.policy.removesuffix(f".{stage.namespace}"): trial.verdict
        for trial in confinement.trials
    }


def writable(check: ConfinementCheck) -> set[str]:
    """What may be written, by the policies that judge it."""
    return {policy for policy in CHECKED if check.allows(policy)}


@contextmanager
def policies_of_others(stage: Stage, allowed: str) -> Iterator[None]:
    """Several policies by which the stage's Nodes have labels of this pattern only.

    Of all that refuse a request the API server names any one; so many are seldom all behind ours.
    """
    labels = "object.metadata.?labels.orValue({})"
    before = "oldObject.metadata.?labels.orValue({})"
    made = [
        Policy(
            name=f"others-{number}",
            holder=names.AGENT,
            group="",
            resources=("nodes",),
            operations=("UPDATE",),
            rules=(
                Rule(
                    name="labels",
                    holds=f"{labels}.all(k, k in {before} || k.matches(r'^({allowed})$'))",
                    message="a label that is not on the list",
                ),
            ),
        )
        for number in range(8)
    ]
    theirs_alone = Case(name="own", ask=merge(NODE, label("nvidia.com/gpu.mode")))
    try:
        stage.install(made)
        deadline = time.monotonic() + ENFORCED_SECONDS
        while stage.answer(theirs_alone, dry_run=True).status == 200:
            assert time.monotonic() < deadline, "the policies of others are not enforced"
            time.sleep(0.1)
        yield
    finally:
        stage.uninstall(made)


@pytest.mark.parametrize("allowed", [r"gpuscape\.io/.*", "[^/]*"], ids=["but for ours", "all"])
def test_policies_of_others_that_refuse_foreign_labels_do_not_lock_the_agent_out(
    any_plane: Plane, allowed: str
) -> None:
    with checked(any_plane) as (stage, check), policies_of_others(stage, allowed):
        confinement = seen(check, lambda it: it.confirmed)

        assert confinement.reason == ""


def broken(policy: str, holder: str) -> tuple[Policy, ...]:
    """The agent's policies, one of which holds another account."""
    return tuple(replace(it, holder=holder) if it.name == policy else it for it in AGENT)


def test_the_shipped_policies_are_confirmed_and_allow_writes(any_plane: Plane) -> None:
    with checked(any_plane) as (_stage, check):
        confinement = seen(check, lambda it: it.confirmed)

        assert confinement.reason == ""
        assert writable(check) == set(CHECKED)


@pytest.mark.parametrize("policy", CHECKED)
def test_a_policy_whose_binding_goes_is_named_and_ends_the_writes(
    plane: Plane, policy: str
) -> None:
    with checked(plane) as (stage, check):
        seen(check, lambda it: it.confirmed)
        stage.remove("ValidatingAdmissionPolicyBinding", policy)

        confinement = seen(check, lambda it: not it.confirmed)

        wanted = dict.fromkeys(CHECKED, PolicyVerdict.REFUSED) | {policy: PolicyVerdict.OPEN}
        assert verdicts(confinement, stage) == wanted
        assert f"policy {policy}.{stage.namespace} lets " in confinement.reason
        assert writable(check) == (set() if policy in CORE else set(CHECKED) - {policy})


@pytest.mark.parametrize("policy", CHECKED)
def test_a_policy_that_holds_another_account_is_named(plane: Plane, policy: str) -> None:
    """As when the account is renamed in the manifests and not in the policy."""
    with checked(plane, broken(policy, "gpuscape-agent-kubeletplugin")) as (stage, check):
        # those that hold are enforced a moment after they are made
        others = len(CHECKED) - 1
        confinement = seen(check, lambda it: len(it.holding) == others)

        wanted = dict.fromkeys(CHECKED, PolicyVerdict.REFUSED) | {policy: PolicyVerdict.OPEN}
        assert verdicts(confinement, stage) == wanted


def test_a_policy_that_only_audits_is_named(plane: Plane) -> None:
    with checked(plane) as (stage, check):
        seen(check, lambda it: it.confirmed)
        stage.weaken(names.AGENT_NODE)

        confinement = seen(check, lambda it: not it.confirmed)

        assert verdicts(confinement, stage)[names.AGENT_NODE] is PolicyVerdict.OPEN


def test_without_a_node_nothing_is_confirmed(plane: Plane) -> None:
    with checked(plane, node="there-is-none") as (stage, check):
        confinement = seen(check, lambda it: len(it.holding) == 3)

        assert verdicts(confinement, stage) == {
            names.AGENT_NODE: PolicyVerdict.UNKNOWN,
            names.AGENT_FLOOR: PolicyVerdict.UNKNOWN,
            names.AGENT_LEASE: PolicyVerdict.REFUSED,
            names.AGENT_EVENT: PolicyVerdict.REFUSED,
            names.AGENT_NODE_FEATURE: PolicyVerdict.REFUSED,
        }
        assert "there-is-none" in confinement.reason


def test_the_check_leaves_nothing_behind(plane: Plane) -> None:
    """Not even where no policy holds it."""
    with checked(plane, ()) as (stage, check):
        path = f"/api/v1/nodes/{stage.node}"
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{stage.namespace}/leases"
        before = plane.demand("GET", path), plane.demand("GET", leases)["items"]

        check.check(0.0)

        assert check.last is not None
        assert set(verdicts(check.last, stage).values()) == {PolicyVerdict.OPEN}
        assert (plane.demand("GET", path), plane.demand("GET", leases)["items"]) == before
