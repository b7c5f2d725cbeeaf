# SPDX-License-Identifier: Apache-2.0
"""The agent's look at its own confinement: which answers count, and when it may write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.cluster.confinement import (
    CORE,
    PROBE,
    Confinement,
    ConfinementCheck,
    PolicyVerdict,
    tried,
)
from api import keys, limits, names
from kube.api import ApiResource, Object, Watch
from kube.api_errors import (
    AdmissionRefused,
    ApiError,
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unreachable,
)
from tests.log_lines import log_lines

NODE, FLOOR, LEASE, EVENT, FEATURE = ORDER = (
    names.AGENT_NODE,
    names.AGENT_FLOOR,
    names.AGENT_LEASE,
    names.AGENT_EVENT,
    names.AGENT_NODE_FEATURE,
)
PERMIT = names.MIG_PERMIT
"""Tried where the agent acts on permits."""
OTHERS = "somebody-elses-policy"


def refused(policy: str) -> AdmissionRefused:
    return AdmissionRefused(f"{policy} denied request", policy=policy)


@dataclass(frozen=True)
class Dry:
    """One dry run."""

    kind: str
    name: str
    body: Mapping[str, Any]
    manager: str | None
    namespace: str | None

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.body.get("metadata", {}).get("labels") or {}
        return labels

    @property
    def judge(self) -> str:
        """The policy that refuses it."""
        if self.manager is not None:
            return FLOOR
        if keys.MIG_PERMIT in str(self.body):
            return PERMIT
        return {"Node": NODE, "Lease": LEASE, "Event": EVENT, "NodeFeature": FEATURE}[self.kind]


@dataclass
class Policies:
    """An API that answers each dry run of the self-check as its policy does, None for success."""

    answers: dict[str, ApiError | None] = field(
        default_factory=lambda: {policy: refused(policy) for policy in (*ORDER, PERMIT)}
    )
    before: Callable[[Dry], bool] = lambda _dry: False
    """What a policy of somebody else refuses, which is the one that is named."""
    asked: list[Dry] = field(default_factory=list)

    def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        return self._answer(resource, name, patch, manager, namespace, dry_run=dry_run)

    def create(
        self,
        resource: ApiResource,
        body: Object,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        name = body["metadata"]["name"]
        return self._answer(resource, name, body, manager, namespace, dry_run=dry_run)

    def get(self, resource: ApiResource, name: str, *, namespace: str | None = None) -> Object:
        raise NotImplementedError

    def watch(
        self,
        resource: ApiResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        fields: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        resource_version: str | None = None,
    ) -> Watch:
        raise NotImplementedError

    def _answer(
        self,
        resource: ApiResource,
        name: str,
        body: Mapping[str, Any],
        manager: str | None,
        namespace: str | None,
        *,
        dry_run: bool,
    ) -> Object:
        assert dry_run, "the self-check writes nothing"
        assert (namespace is not None) == resource.namespaced
        dry = Dry(resource.kind, name, body, manager, namespace)
        self.asked.append(dry)
        if self.before(dry):
            raise refused(OTHERS)
        error = self.answers[dry.judge]
        if error is not None:
            raise error
        return {}


def seen(api: Policies) -> Confinement:
    return tried(api, "n1", "gpuscape", node_features=True)


def check_of(
    api: Policies,
    *,
    allow_unconfined: bool = False,
    on_change: Callable[[Confinement], None] = lambda _confinement: None,
) -> ConfinementCheck:
    return ConfinementCheck(
        api,
        node="n1",
        namespace="gpuscape",
        node_features=True,
        allow_unconfined=allow_unconfined,
        on_change=on_change,
        uniform=lambda _low, high: high,
    )


def writable(check: ConfinementCheck) -> set[str]:
    """What may be written, by the policies that judge it."""
    return {policy for policy in ORDER if check.allows(policy)}


def test_refusals_by_the_right_policies_confirm() -> None:
    confinement = seen(Policies())

    assert confinement.confirmed
    assert confinement.reason == ""
    assert [trial.policy for trial in confinement.trials] == list(ORDER)


def test_each_policy_is_asked_for_what_it_alone_refuses() -> None:
    api = Policies()

    seen(api)

    (node, floor, lease, event, feature) = api.asked
    assert (node.kind, node.name, node.manager) == ("Node", "n1", None)
    assert node.body == {"metadata": {"labels": {PROBE: "1"}}}
    assert (floor.kind, floor.name, floor.body) == ("Node", "n1", {})
    assert floor.manager == "gpuscape-confinement-check"
    assert (lease.kind, lease.name, lease.namespace) == ("Lease", "gpuscape-n1-x", "gpuscape")
    assert (event.kind, event.namespace) == ("Event", "default")
    assert event.body["regarding"]["name"] == "n1-x"
    assert (feature.kind, feature.namespace) == ("NodeFeature", "gpuscape")
    assert feature.name == "nvidia-features-for-n1-x"
    assert feature.body["spec"].keys() == {"features", "labels"}  # else the kind's schema refuses


def test_what_it_asks_for_is_whole_so_that_nothing_but_the_policy_refuses_it() -> None:
    """Source of what the API server asks of an Event: Kubernetes, pkg/apis/core/validation."""
    api = Policies(before=lambda dry: dry.kind == "Node")
    seen(api)
    asked = {(dry.kind, dry.manager is None): dry for dry in api.asked}
    assert asked["Lease", False] == Dry(
        kind="Lease",
        name="gpuscape-n1",
        body={
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "gpuscape-n1"},
        },
        manager="gpuscape-confinement-check",
        namespace="gpuscape",
    )
    assert asked["Lease", True].body["metadata"] == {"name": "gpuscape-n1-x"}
    assert asked["Event", True].body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "confinement-check", "namespace": "default"},
        "eventTime": "2000-01-01T00:00:00.000000Z",
        "reportingController": "gpuscape-agent",
        "reportingInstance": "gpuscape-agent",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n1-x"},
        "reason": "ConfinementCheck",
        "action": "Check",
        "type": "Normal",
    }
    feature = asked["NodeFeature", True].body
    assert (feature["apiVersion"], feature["kind"]) == ("nfd.k8s-sigs.io/v1alpha1", "NodeFeature")
    assert feature["metadata"] == {
        "name": "nvidia-features-for-n1-x",
        "labels": {"nfd.node.kubernetes.io/node-name": "n1-x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1-x", "uid": "none"}],
    }
    assert feature["spec"]["labels"] == {}


def test_an_agent_without_node_features_does_not_try_their_policy() -> None:
    assert FEATURE not in {trial.policy for trial in tried(Policies(), "n1", "gpuscape").trials}


def acting(api: Policies) -> Confinement:
    """What an agent sees that acts on permits."""
    return tried(api, "n1", "gpuscape", node_features=True, mig_permits=True)


def test_an_agent_that_acts_on_permits_tries_that_nobody_can_forge_one() -> None:
    api = Policies()

    assert acting(api).confirmed
    assert (api.asked[-1].kind, api.asked[-1].name) == ("Node", "n1")
    assert api.asked[-1].body == {"metadata": {"annotations": {keys.MIG_PERMIT: "1"}}}
    assert PERMIT not in {trial.policy for trial in seen(Policies()).trials}


def test_a_forged_permit_that_is_let_through_names_the_policy_and_its_file() -> None:
    api = Policies()
    api.answers[PERMIT] = None

    reason = acting(api).reason

    assert reason.startswith(f"policy {PERMIT} lets a permit that no coordinator wrote through")
    assert "deploy/coordinator/access.yaml" in reason


def test_an_agents_policy_from_before_that_refuses_the_permit_itself_is_named_with_its_file() -> (
    None
):
    api = Policies()
    api.answers[PERMIT] = refused(NODE)

    confinement = acting(api)

    assert {it.policy: it.verdict for it in confinement.trials}[PERMIT] is PolicyVerdict.UNKNOWN
    assert confinement.reason.endswith(
        "in its place: that policy is older than this agent: apply deploy/base/access.yaml"
    )


def test_without_the_policy_on_permits_all_else_may_be_written() -> None:
    api = Policies()
    api.answers[PERMIT] = None
    check = ConfinementCheck(api, node="n1", namespace="gpuscape", mig_permits=True)
    check.check(0.0)

    assert writable(check) == {*CORE, EVENT}
    assert not check.allows(PERMIT)


def test_the_key_it_tries_is_under_our_prefix_and_none_of_the_agents() -> None:
    assert PROBE.startswith(limits.PREFIXES)
    assert not any(key.matches(PROBE) for key in keys.KEYS)


def test_a_policy_that_refuses_the_label_too_is_got_around_by_an_annotation() -> None:
    api = Policies(before=lambda dry: dry.kind == "Node" and bool(dry.labels))

    assert seen(api).confirmed
    assert api.asked[1].body == {"metadata": {"annotations": {PROBE: "1"}}}


def test_a_policy_that_judges_who_may_write_nodes_is_got_around_by_the_lease() -> None:
    api = Policies(before=lambda dry: dry.kind == "Node" and dry.manager is not None)

    assert seen(api).confirmed
    assert (api.asked[2].kind, api.asked[2].name) == ("Lease", "gpuscape-n1")


def test_behind_the_policy_of_others_one_of_ours_that_is_inert_is_found() -> None:
    api = Policies(before=lambda dry: bool(dry.labels))
    api.answers[NODE] = None

    confinement = seen(api)

    assert {it.policy: it.verdict for it in confinement.trials}[NODE] is PolicyVerdict.OPEN
    assert "lets an annotation that is none of the agent's through" in confinement.reason


def test_where_others_refuse_all_it_asks_for_they_and_the_way_out_are_named() -> None:
    confinement = seen(Policies(before=lambda dry: dry.kind == "Node"))

    verdicts = {it.policy: it.verdict for it in confinement.trials}
    assert (verdicts[NODE], verdicts[FLOOR]) == (PolicyVerdict.UNKNOWN, PolicyVerdict.REFUSED)
    assert OTHERS in confinement.reason
    assert "exempt the account gpuscape-agent" in confinement.reason


@pytest.mark.parametrize("policy", ORDER)
def test_a_dry_run_that_is_let_through_names_its_policy_as_open(policy: str) -> None:
    api = Policies()
    api.answers[policy] = None

    confinement = seen(api)

    (wrong,) = [each for each in confinement.trials if each.verdict is not PolicyVerdict.REFUSED]
    assert (wrong.policy, wrong.verdict) == (policy, PolicyVerdict.OPEN)
    assert not confinement.confirmed
    assert confinement.reason.startswith(f"policy {policy} lets ")


@pytest.mark.parametrize("policy", ORDER)
@pytest.mark.parametrize(
    "error",
    [
        Invalid("PATCH nodes/n1: 422"),
        Forbidden("PATCH nodes/n1: 403"),
        NotFound("PATCH nodes/n1: 404"),
        Conflict("PATCH nodes/n1: 409"),
        Busy("PATCH nodes/n1: 503"),
        Unreachable("PATCH nodes/n1: timed out"),
        refused(OTHERS),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_other_answer_leaves_the_policy_unknown(policy: str, error: ApiError) -> None:
    api = Policies()
    api.answers[policy] = error

    confinement = seen(api)

    verdicts = {each.policy: each.verdict for each in confinement.trials}
    assert verdicts == dict.fromkeys(ORDER, PolicyVerdict.REFUSED) | {policy: PolicyVerdict.UNKNOWN}
    assert not confinement.confirmed
    assert policy in confinement.reason


def test_nothing_may_be_written_before_the_first_check() -> None:
    assert writable(check_of(Policies())) == set()


def test_confirmed_it_writes_and_looks_again_in_a_day() -> None:
    check = check_of(Policies())

    assert check.check(0.0) == 24 * 3600
    assert writable(check) == set(ORDER)


@pytest.mark.parametrize("policy", CORE)
def test_not_confirmed_it_writes_nothing_and_looks_again_soon_then_within_a_minute(
    policy: str,
) -> None:
    api = Policies()
    check = check_of(api)
    check.check(0.0)
    api.answers[policy] = Busy("503")

    assert [check.check(0.0) for _ in range(6)] == [5, 10, 20, 40, 60, 60]
    assert writable(check) == set()


@pytest.mark.parametrize("policy", [EVENT, FEATURE])
def test_a_policy_of_one_kind_holds_back_that_kind_and_is_tried_less_and_less(policy: str) -> None:
    api = Policies()
    api.answers[policy] = NotFound("404")
    check = check_of(api)

    waits = [check.check(0.0) for _ in range(10)]

    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert writable(check) == set(ORDER) - {policy}


def test_waits_are_drawn_from_nothing_to_their_bound() -> None:
    """Full jitter: of a draw's bounds the lower one is always zero."""
    api = Policies()
    api.answers[NODE] = Busy("503")
    drawn: list[tuple[float, float]] = []

    def halfway(low: float, high: float) -> float:
        drawn.append((low, high))
        return (low + high) / 2

    check = ConfinementCheck(api, node="n1", namespace="gpuscape", uniform=halfway)
    waits = [check.check(0.0) for _ in range(5)]

    assert drawn == [(0.0, 5.0), (0.0, 10.0), (0.0, 20.0), (0.0, 40.0), (0.0, 60.0)]
    assert waits == [2.5, 5.0, 10.0, 20.0, 30.0]


def test_where_there_are_no_node_features_the_reason_says_what_to_do() -> None:
    api = Policies()
    api.answers[FEATURE] = NotFound("404: no such resource")

    assert "install Node Feature Discovery" in seen(api).reason


def test_in_another_namespace_the_policies_there_count() -> None:
    mine = {policy: refused(f"{policy}.monitoring") for policy in ORDER}
    check = ConfinementCheck(Policies(answers={**mine}), node="n1", namespace="monitoring")
    theirs = ConfinementCheck(Policies(), node="n1", namespace="monitoring")
    for each in (check, theirs):
        each.check(0.0)

    assert writable(check) == set(ORDER) - {FEATURE}
    assert writable(theirs) == set()


def test_whoever_allows_it_has_it_write_unconfined_and_still_look() -> None:
    api = Policies()
    api.answers[FLOOR] = None
    check = check_of(api, allow_unconfined=True)

    assert writable(check) == set(ORDER)
    assert check.check(0.0) == 5
    assert writable(check) == set(ORDER)


def test_a_change_is_told_once() -> None:
    api = Policies()
    told: list[bool] = []
    check = check_of(api, on_change=lambda confinement: told.append(confinement.confirmed))

    for answer in (refused(NODE), refused(NODE), None, None, Busy("503"), refused(NODE)):
        api.answers[NODE] = answer
        check.check(0.0)

    assert told == [True, False, False, True]


@pytest.mark.parametrize(
    ("inert", "allowed", "level", "message"),
    [
        (None, False, "INFO", "admission policies enforced"),
        (None, True, "INFO", "admission policies enforced"),
        (NODE, False, "ERROR", "admission policies not enforced, nothing is written"),
        (EVENT, False, "ERROR", "admission policies not enforced, part is written"),
        (NODE, True, "WARNING", "admission policies not enforced, all is written"),
    ],
)
def test_the_log_says_in_one_line_what_holds_and_what_follows(
    inert: str | None, allowed: bool, level: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    api = Policies()
    if inert is not None:
        api.answers[inert] = None
    check = check_of(api, allow_unconfined=allowed)
    for _ in range(2):
        check.check(0.0)
    assert check.last is not None
    fields = {"node": "n1"} if inert is None else {"why": check.last.reason}
    assert log_lines(caplog) == [(level, message, fields)]


def test_the_reason_names_what_was_let_through_and_the_way_out() -> None:
    api = Policies()
    api.answers[LEASE] = None
    assert seen(api).reason == (
        f"policy {LEASE} lets the Lease of another node through: it or its binding is missing,"
        " leaves this Node out or only audits, or it names another account; apply"
        " deploy/base/access.yaml for this namespace"
    )
    assert [it.reason for it in seen(Policies()).trials] == [""] * len(ORDER)


def test_of_what_is_open_and_what_is_unknown_the_open_comes_first() -> None:
    api = Policies()
    api.answers |= {EVENT: None, FEATURE: Forbidden("403")}
    opened, _, unknown = seen(api).reason.partition("; not known ")
    assert opened.startswith(f"policy {EVENT} lets an Event about another node through")
    assert "; " in seen(api).reason
    assert unknown == f"whether {FEATURE} hold: 403"


def test_where_others_refuse_all_that_a_policy_judges_each_is_named_with_what_it_refused() -> None:
    def before(dry: Dry) -> bool:
        return dry.kind == "Node" and dry.manager is None

    assert seen(Policies(before=before)).reason == (
        f"not known whether {NODE} hold: {OTHERS} refused an annotation that is none of the"
        " agent's in its place: exempt the account gpuscape-agent from that"
    )


def test_one_cause_for_all_policies_is_told_once() -> None:
    reason = seen(Policies(answers=dict.fromkeys(ORDER, Unreachable("connection refused")))).reason
    assert reason == f"not known whether {' and '.join(ORDER)} hold: connection refused"
