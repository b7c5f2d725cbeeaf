"""The agent's look at its own confinement: which answers count, and when it may write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.cluster.confinement import Confinement, ConfinementCheck, Verdict, tried
from kube.api import Object, Resource, Watch
from kube.errors import ApiError, Busy, Conflict, Forbidden, Invalid, NotFound, Refused, Unreachable

NODE, FLOOR, LEASE = "gpuscape-agent-node", "gpuscape-agent-floor", "gpuscape-agent-lease"
ORDER = (NODE, FLOOR, LEASE)


def refused(policy: str) -> Refused:
    return Refused(f"{policy} denied request", policy=policy)


@dataclass
class Policies:
    """An API that answers each dry run of the self-check as its policy does, None for success."""

    answers: dict[str, ApiError | None] = field(
        default_factory=lambda: {policy: refused(policy) for policy in ORDER}
    )
    asked: list[tuple[str, Resource, str, Mapping[str, Any], str | None]] = field(
        default_factory=list
    )

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        policy = NODE if patch else FLOOR
        return self._answer(policy, resource, name, patch, manager, namespace, dry_run=dry_run)

    def create(
        self,
        resource: Resource,
        body: Object,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        manager: str | None = None,
    ) -> Object:
        name = body["metadata"]["name"]
        return self._answer(LEASE, resource, name, body, manager, namespace, dry_run=dry_run)

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        raise NotImplementedError

    def watch(
        self,
        resource: Resource,
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
        policy: str,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        manager: str | None,
        namespace: str | None,
        *,
        dry_run: bool,
    ) -> Object:
        assert dry_run, "the self-check writes nothing"
        assert (namespace == "gpuscape") == resource.namespaced
        self.asked.append((policy, resource, name, body, manager))
        error = self.answers[policy]
        if error is not None:
            raise error
        return {}


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
        allow_unconfined=allow_unconfined,
        on_change=on_change,
    )


def test_three_refusals_by_the_right_policies_confirm() -> None:
    confinement = tried(Policies(), "n1", "gpuscape")

    assert confinement.confirmed
    assert confinement.reason == ""
    assert [trial.policy for trial in confinement.trials] == list(ORDER)


def test_each_policy_is_asked_for_what_it_alone_refuses() -> None:
    api = Policies()

    tried(api, "n1", "gpuscape")

    (node, floor, lease) = api.asked
    assert (node[1].kind, node[2], node[4]) == ("Node", "n1", None)
    assert node[3] == {"metadata": {"labels": {"gpuscape.invalid/confinement-check": "1"}}}
    assert (floor[1].kind, floor[2], floor[3]) == ("Node", "n1", {})
    assert floor[4] == "gpuscape-confinement-check"
    assert (lease[1].kind, lease[2], lease[4]) == ("Lease", "gpuscape-n1-x", None)


@pytest.mark.parametrize("policy", ORDER)
def test_a_dry_run_that_is_let_through_names_its_policy_as_open(policy: str) -> None:
    api = Policies()
    api.answers[policy] = None

    confinement = tried(api, "n1", "gpuscape")

    (wrong,) = [each for each in confinement.trials if each.verdict is not Verdict.REFUSED]
    assert (wrong.policy, wrong.verdict) == (policy, Verdict.OPEN)
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
        refused("somebody-elses-policy"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_other_answer_leaves_the_policy_unknown(policy: str, error: ApiError) -> None:
    api = Policies()
    api.answers[policy] = error

    confinement = tried(api, "n1", "gpuscape")

    verdicts = {each.policy: each.verdict for each in confinement.trials}
    assert verdicts == dict.fromkeys(ORDER, Verdict.REFUSED) | {policy: Verdict.UNKNOWN}
    assert not confinement.confirmed
    assert policy in confinement.reason


def test_nothing_may_be_written_before_the_first_check() -> None:
    assert not check_of(Policies()).allows_writes


def test_confirmed_it_writes_and_looks_again_in_a_day() -> None:
    check = check_of(Policies())

    assert check.check(0.0) == 24 * 3600
    assert check.allows_writes


def test_not_confirmed_it_writes_nothing_and_looks_again_soon_then_each_minute() -> None:
    api = Policies()
    check = check_of(api)
    check.check(0.0)
    api.answers[FLOOR] = Busy("503")

    assert [check.check(0.0) for _ in range(6)] == [5, 10, 20, 40, 60, 60]
    assert not check.allows_writes


def test_whoever_allows_it_has_it_write_unconfined_and_still_look() -> None:
    api = Policies()
    api.answers[FLOOR] = None
    check = check_of(api, allow_unconfined=True)

    assert check.allows_writes
    assert check.check(0.0) == 5
    assert check.allows_writes


def test_a_change_is_told_once() -> None:
    api = Policies()
    told: list[bool] = []
    check = check_of(api, on_change=lambda confinement: told.append(confinement.confirmed))

    for answer in (refused(NODE), refused(NODE), None, None, Busy("503"), refused(NODE)):
        api.answers[NODE] = answer
        check.check(0.0)

    assert told == [True, False, False, True]


def test_the_log_says_in_one_line_what_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    api = Policies()
    api.answers[NODE] = None

    check_of(api).check(0.0)

    (record,) = caplog.records
    assert (record.levelname, record.msg) == ("ERROR", "nothing is written until confined")
    assert NODE in record.__dict__["why"]
    assert "\n" not in record.__dict__["why"]


def test_one_cause_for_all_policies_is_told_once() -> None:
    policies = Policies(answers=dict.fromkeys(ORDER, Unreachable("connection refused")))
    reason = tried(policies, "node-a", "gpuscape").reason
    assert reason == f"not known whether {NODE} and {FLOOR} and {LEASE} hold: connection refused"
