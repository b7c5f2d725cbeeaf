"""The agent's self-check on real API servers: confirmed where the policies hold, else named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agent.cluster.confinement import Confinement, ConfinementCheck, Verdict
from kube.access import find
from kube.client import Client, Program
from labelers import names
from tests.access.stage import ENFORCED_SECONDS, Roles, Stage
from tests.controlplane.plane import Plane
from tools.access.files import POLICIES
from tools.access.policy import Policy

pytestmark = pytest.mark.cluster

AGENT = POLICIES[names.AGENT]
CHECKED = (names.AGENT_NODE, names.AGENT_FLOOR, names.AGENT_LEASE)


@contextmanager
def checked(
    plane: Plane, policies: Iterable[Policy] = AGENT, *, node: str | None = None
) -> Iterator[tuple[Stage, ConfinementCheck]]:
    """A stage with these policies and the check of an agent there, of its Node or another's."""
    stage = Stage(plane, Roles.SHIPPED, policies)
    kubeconfig = plane.kubeconfig(token=stage.bound_token())
    program = Program(name=names.AGENT, version="0", requests_per_second=1000, burst=1000)
    client = Client(program, find(str(kubeconfig)))
    try:
        yield (
            stage,
            ConfinementCheck(client, node=node or stage.node, namespace=stage.namespace),
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


def verdicts(confinement: Confinement, stage: Stage) -> dict[str, Verdict]:
    """By the policy's name in the default namespace."""
    return {
        trial.policy.removesuffix(f".{stage.namespace}"): trial.verdict
        for trial in confinement.trials
    }


def broken(policy: str, holder: str) -> tuple[Policy, ...]:
    """The agent's policies, one of which holds another account."""
    return tuple(replace(it, holder=holder) if it.name == policy else it for it in AGENT)


def test_the_shipped_policies_are_confirmed_and_allow_writes(any_plane: Plane) -> None:
    with checked(any_plane) as (_stage, check):
        confinement = seen(check, lambda it: it.confirmed)

        assert confinement.reason == ""
        assert check.allows_writes


@pytest.mark.parametrize("policy", CHECKED)
def test_a_policy_whose_binding_goes_is_named_and_ends_the_writes(
    plane: Plane, policy: str
) -> None:
    with checked(plane) as (stage, check):
        seen(check, lambda it: it.confirmed)
        stage.remove("ValidatingAdmissionPolicyBinding", policy)

        confinement = seen(check, lambda it: not it.confirmed)

        wanted = dict.fromkeys(CHECKED, Verdict.REFUSED) | {policy: Verdict.OPEN}
        assert verdicts(confinement, stage) == wanted
        assert f"policy {policy}.{stage.namespace} lets " in confinement.reason
        assert not check.allows_writes


@pytest.mark.parametrize("policy", CHECKED)
def test_a_policy_that_holds_another_account_is_named(plane: Plane, policy: str) -> None:
    """As when the account is renamed in the manifests and not in the policy."""
    with checked(plane, broken(policy, "gpuscape-agent-kubeletplugin")) as (stage, check):
        # those that hold are enforced a moment after they are made
        confinement = seen(check, lambda it: str(it).count(Verdict.REFUSED.name) == 2)

        wanted = dict.fromkeys(CHECKED, Verdict.REFUSED) | {policy: Verdict.OPEN}
        assert verdicts(confinement, stage) == wanted


def test_a_policy_that_only_audits_is_named(plane: Plane) -> None:
    with checked(plane) as (stage, check):
        seen(check, lambda it: it.confirmed)
        stage.weaken(names.AGENT_NODE)

        confinement = seen(check, lambda it: not it.confirmed)

        assert verdicts(confinement, stage)[names.AGENT_NODE] is Verdict.OPEN


def test_without_a_node_nothing_is_confirmed(plane: Plane) -> None:
    with checked(plane, node="there-is-none") as (stage, check):
        confinement = seen(check, lambda it: it.trials[2].verdict is Verdict.REFUSED)

        assert verdicts(confinement, stage) == {
            names.AGENT_NODE: Verdict.UNKNOWN,
            names.AGENT_FLOOR: Verdict.UNKNOWN,
            names.AGENT_LEASE: Verdict.REFUSED,
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
        assert set(verdicts(check.last, stage).values()) == {Verdict.OPEN}
        assert (plane.demand("GET", path), plane.demand("GET", leases)["items"]) == before
