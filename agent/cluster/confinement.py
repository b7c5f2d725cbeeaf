# SPDX-License-Identifier: Apache-2.0
"""Checks by dry runs that admission policies confine this agent to its own node.

A policy whose condition matches nobody looks like any other, so the agent sends
requests that must be refused, as server-side dry runs: they pass through admission and
are not stored. Only a refusal by the policy that must refuse counts; every other answer
leaves it unknown, and unknown means that what the policy judges is not written.

Of several policies that refuse a request the API server names one, whichever comes first.
So a request changes what policies of others hardly judge, a key under our own prefix
that is none of the agent's; and where another policy refuses all the same, another request
follows that only ours refuses. Source: kube-apiserver 1.32 and 1.37, plugin
validatingadmissionpolicy.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from agent.cluster import node_feature
from api import keys, names
from kube.api import EVENTS, LEASES, NODE_FEATURES, NODES, Api, ApiResource, Object
from kube.api_errors import AdmissionRefused, ApiError, NotFound
from kube.lease import micro_time

log = logging.getLogger(__name__)

CONFIRMED_SECONDS = 24 * 3600.0
FIRST_RETRY_SECONDS = 5.0
"""Bound of the first wait: a policy that was just applied takes a moment to be enforced. Each
wait is drawn at random below its bound: see :mod:`base.backoff`."""
UNCONFIRMED_SECONDS = 60.0
"""Largest bound while a policy of :data:`CORE` is not confirmed."""
PARTLY_SECONDS = 600.0
"""Largest bound while only other policies are not confirmed."""

CORE = (names.AGENT_NODE, names.AGENT_FLOOR, names.AGENT_LEASE)
"""The policies without which nothing is written. The others hold back what they judge alone."""
PROBE = "gpuscape.io/confinement-check"
"""Key of a label and an annotation that the agent may not write."""
FOREIGN_MANAGER = "gpuscape-confinement-check"


class PolicyVerdict(StrEnum):
    """Verdict of the dry runs on a policy."""

    REFUSED = "refused"
    """The policy holds this agent."""
    OPEN = "open"
    """The policy let a dry run through."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Result of the dry runs that a policy must refuse."""

    policy: str
    verdict: PolicyVerdict
    reason: str
    """Why the verdict is not ``refused``, for people; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """Results of all dry runs."""

    trials: tuple[Trial, ...]

    @property
    def confirmed(self) -> bool:
        """Every policy was seen to refuse."""
        return all(trial.verdict is PolicyVerdict.REFUSED for trial in self.trials)

    @property
    def holding(self) -> frozenset[str]:
        """The policies that were seen to refuse."""
        return frozenset(
            trial.policy for trial in self.trials if trial.verdict is PolicyVerdict.REFUSED
        )

    @property
    def reason(self) -> str:
        """Policies that do not hold and why, on one line; empty when confirmed."""
        unknown = [trial for trial in self.trials if trial.verdict is PolicyVerdict.UNKNOWN]
        reasons = [trial.reason for trial in self.trials if trial.verdict is PolicyVerdict.OPEN]
        if unknown:  # most often all for one reason: the first stands for them
            policies = " and ".join(trial.policy for trial in unknown)
            reasons.append(f"not known whether {policies} hold: {unknown[0].reason}")
        return "; ".join(reasons)


def tried(
    api: Api,
    node: str,
    namespace: str,
    *,
    node_features: bool = False,
    mig_permits: bool = False,
) -> Confinement:
    """Make the dry runs: one for each policy, more where another policy refuses in its place.

    ``node_features``: whether the agent writes those; ``mig_permits``: whether it acts on permits.
    """
    probes = _probes(api, node, namespace)
    if not node_features:
        del probes[names.AGENT_NODE_FEATURE]
    if not mig_permits:
        del probes[names.MIG_PERMIT]
    return Confinement(
        trials=tuple(
            _trial(names.clusterwide(policy, namespace), requests)
            for policy, requests in probes.items()
        )
    )


def permit_trial(api: Api, node: str, namespace: str) -> Trial:
    """Try by a dry run whether a permit on the Node that no coordinator wrote is refused.

    The caller has to be allowed to patch Nodes, and must not be the coordinator.
    """
    requests = _probes(api, node, namespace)[names.MIG_PERMIT]
    return _trial(names.clusterwide(names.MIG_PERMIT, namespace), requests)


_Requests = Mapping[str, Callable[[], Object]]
"""Description of each request to the function that sends it. The policy refuses each of them."""


def _probes(api: Api, node: str, namespace: str) -> dict[str, _Requests]:
    """Requests by which each policy is seen to refuse, by policy."""
    # need not exist: policies compare names
    other = f"{node}-x"
    event = {
        "metadata": {"name": "confinement-check", "namespace": names.EVENT_NAMESPACE},
        "eventTime": micro_time(datetime(2000, 1, 1, tzinfo=UTC)),
        "reportingController": names.AGENT,
        "reportingInstance": names.AGENT,
        "regarding": {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": other},
        "reason": "ConfinementCheck",
        "action": "Check",
        "type": "Normal",
    }

    def marked(part: str, key: str = PROBE) -> Object:
        patch = {"metadata": {part: {key: "1"}}}
        return api.patch(NODES, node, patch, dry_run=True)

    def create(resource: ApiResource, body: Object, *, manager: str | None = None) -> Object:
        place = names.EVENT_NAMESPACE if resource is EVENTS else namespace
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return api.create(resource, body, namespace=place, dry_run=True, manager=manager)

    def lease(name: str, *, manager: str | None = None) -> Object:
        return create(LEASES, {"metadata": {"name": names.agent_lease(name)}}, manager=manager)

    def feature() -> Object:
        try:  # whole, for the kind's own schema is asked before the policy
            node = {"metadata": {"name": other, "uid": "none"}}
            return create(NODE_FEATURES, node_feature.new_node_feature(node, {}))
        except NotFound as error:
            raise NotFound(f"{node_feature.NO_KIND} ({error})") from error

    return {
        names.AGENT_NODE: {
            "a label that is none of the agent's": lambda: marked("labels"),
            "an annotation that is none of the agent's": lambda: marked("annotations"),
        },
        names.AGENT_FLOOR: {
            "another field manager": lambda: api.patch(
                NODES, node, {}, dry_run=True, manager=FOREIGN_MANAGER
            ),
            "another field manager of a Lease": lambda: lease(node, manager=FOREIGN_MANAGER),
        },
        names.AGENT_LEASE: {"the Lease of another node": lambda: lease(other)},
        names.AGENT_EVENT: {"an Event about another node": lambda: create(EVENTS, event)},
        names.AGENT_NODE_FEATURE: {"the NodeFeature of another node": feature},
        # the agent's own policy lets this through in a dry run, so that the other is seen
        names.MIG_PERMIT: {
            "a permit that no coordinator wrote": lambda: marked("annotations", keys.MIG_PERMIT)
        },
    }


def _trial(policy: str, requests: _Requests) -> Trial:
    """Send requests until the policy itself has answered, or none is left."""
    request_by_refuser: dict[str, str] = {}
    for request, send in requests.items():
        try:
            send()
        except AdmissionRefused as error:
            if error.policy == policy:
                return Trial(policy=policy, verdict=PolicyVerdict.REFUSED, reason="")
            request_by_refuser[error.policy] = request
        except ApiError as error:
            return Trial(policy=policy, verdict=PolicyVerdict.UNKNOWN, reason=str(error))
        else:
            part = "coordinator" if names.is_clusterwide(names.MIG_PERMIT, policy) else "base"
            reason = (
                f"policy {policy} lets {request} through: it or its binding is missing, leaves "
                "this Node out or only audits, or it names another account; apply "
                f"deploy/{part}/access.yaml for this namespace"
            )
            return Trial(policy=policy, verdict=PolicyVerdict.OPEN, reason=reason)
    refused = " and ".join(
        f"{refuser} refused {request}" for refuser, request in request_by_refuser.items()
    )
    remedy = f"exempt the account {names.AGENT} from that"
    is_of_agent = any(
        names.is_clusterwide(names.AGENT_NODE, refuser) for refuser in request_by_refuser
    )
    if names.is_clusterwide(names.MIG_PERMIT, policy) and is_of_agent:
        remedy = "that policy is older than this agent: apply deploy/base/access.yaml"
    reason = f"{refused} in its place: {remedy}"
    return Trial(policy=policy, verdict=PolicyVerdict.UNKNOWN, reason=reason)


class ConfinementCheck:
    """Tries the policies at the start and daily; not confirmed, soon again, then within a minute.

    With full jitter, so that agents that could not reach the API server, or whose policies come
    late, are not back in the same moment.
    """

    def __init__(
        self,
        api: Api,
        *,
        node: str,
        namespace: str,
        node_features: bool = False,
        mig_permits: bool = False,
        allow_unconfined: bool = False,
        on_change: Callable[[Confinement], None] = lambda _confinement: None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``on_change`` is called with the first result and every one with other verdicts.

        ``node_features``: whether the agent writes those; ``mig_permits``: whether it acts on them.
        ``uniform`` draws a wait between two bounds.
        """
        self._api = api
        self._node = node
        self._namespace = namespace
        self._node_features = node_features
        self._mig_permits = mig_permits
        self._allow_unconfined = allow_unconfined
        self._on_change = on_change
        self._uniform = uniform
        self._last: Confinement | None = None
        self._retry = FIRST_RETRY_SECONDS

    @property
    def last(self) -> Confinement | None:
        """The last result; None before the first check."""
        return self._last

    def allows(self, policy: str) -> bool:
        """Whether what this policy judges may be written: confined, or configured to do without."""
        return self._allow_unconfined or self._holds(*CORE, policy)

    def check(self, _now: float) -> float:
        """Try the policies; the seconds until the next time."""
        before = self._last
        result = tried(
            self._api,
            self._node,
            self._namespace,
            node_features=self._node_features,
            mig_permits=self._mig_permits,
        )
        self._last = result
        if before is None or _verdicts(before) != _verdicts(result):
            self._log(result)
            self._on_change(result)
        if result.confirmed:
            self._retry = FIRST_RETRY_SECONDS
            return CONFIRMED_SECONDS
        longest = PARTLY_SECONDS if self._holds(*CORE) else UNCONFIRMED_SECONDS
        bound = min(self._retry, longest)
        self._retry = 2 * bound
        return self._uniform(0.0, bound)

    def _holds(self, *policies: str) -> bool:
        """Whether all of these were seen to refuse."""
        if self._last is None:
            return False
        policy_names = {names.clusterwide(policy, self._namespace) for policy in policies}
        return policy_names <= self._last.holding

    def _log(self, confinement: Confinement) -> None:
        if confinement.confirmed:
            log.info("admission policies enforced", extra={"node": self._node})
        elif self._allow_unconfined:
            log.warning(
                "admission policies not enforced, all is written", extra={"why": confinement.reason}
            )
        elif self._holds(*CORE):
            log.error(
                "admission policies not enforced, part is written",
                extra={"why": confinement.reason},
            )
        else:
            log.error(
                "admission policies not enforced, nothing is written",
                extra={"why": confinement.reason},
            )


def _verdicts(confinement: Confinement) -> tuple[PolicyVerdict, ...]:
    return tuple(trial.verdict for trial in confinement.trials)
