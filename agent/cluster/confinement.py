"""Whether admission policies hold this agent to its own node: tried, never assumed.

A policy whose condition matches nobody looks like any other, so the agent asks for
three things that it must not get, as server-side dry runs: they pass through
admission and are not stored. Only a refusal by the policy that must refuse counts;
every other answer leaves it unknown, and unknown means that nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kube.api import LEASES, NODES, Api
from kube.errors import ApiError, Refused
from labelers import names

log = logging.getLogger(__name__)

CONFIRMED_SECONDS = 24 * 3600.0
FIRST_RETRY_SECONDS = 5.0
"""A policy that was just applied takes a moment to be enforced."""
UNCONFIRMED_SECONDS = 60.0
"""While it is not confirmed after that."""

FOREIGN_LABEL = "gpuscape.invalid/confinement-check"
FOREIGN_MANAGER = "gpuscape-confinement-check"


class Verdict(StrEnum):
    """What one dry run showed of its policy."""

    REFUSED = "refused"
    """The policy holds this agent."""
    OPEN = "open"
    """It was let through."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One dry run that must be refused."""

    policy: str
    verdict: Verdict
    reason: str
    """For people; empty when refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What all dry runs showed."""

    trials: tuple[Trial, ...]

    @property
    def confirmed(self) -> bool:
        """Every policy was seen to refuse."""
        return all(trial.verdict is Verdict.REFUSED for trial in self.trials)

    @property
    def reason(self) -> str:
        """One line: what is wrong with which policy; empty when confirmed."""
        unknown = [trial for trial in self.trials if trial.verdict is Verdict.UNKNOWN]
        told = [trial.reason for trial in self.trials if trial.verdict is Verdict.OPEN]
        if unknown:  # most often all for one reason: the first stands for them
            policies = " and ".join(trial.policy for trial in unknown)
            told.append(f"not known whether {policies} hold: {unknown[0].reason}")
        return "; ".join(told)


def tried(api: Api, node: str, namespace: str) -> Confinement:
    """Make the three dry runs, one for each policy that the agent's writes depend on."""

    def foreign_label() -> None:
        patch = {"metadata": {"labels": {FOREIGN_LABEL: "1"}}}
        api.patch(NODES, node, patch, dry_run=True)

    def foreign_manager() -> None:
        api.patch(NODES, node, {}, dry_run=True, manager=FOREIGN_MANAGER)

    def foreign_lease() -> None:
        metadata = {"name": names.lease(node) + "-x", "namespace": namespace}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        api.create(LEASES, lease, namespace=namespace, dry_run=True)

    asked = (
        (names.AGENT_NODE, "a label of others", foreign_label),
        (names.AGENT_FLOOR, "another field manager", foreign_manager),
        (names.AGENT_LEASE, "the Lease of another node", foreign_lease),
    )
    return Confinement(
        trials=tuple(
            _trial(names.clusterwide(policy, namespace), what, ask) for policy, what, ask in asked
        )
    )


def _trial(policy: str, what: str, ask: Callable[[], None]) -> Trial:
    try:
        ask()
    except Refused as error:
        if error.policy == policy:
            return Trial(policy=policy, verdict=Verdict.REFUSED, reason="")
        return _unknown(policy, f"{error.policy} refused {what} in its place")
    except ApiError as error:
        return _unknown(policy, str(error))
    return Trial(
        policy=policy,
        verdict=Verdict.OPEN,
        reason=f"policy {policy} lets {what} through: it or its binding is missing, "
        "or it names another account; apply deploy/base/access.yaml for this namespace",
    )


def _unknown(policy: str, why: str) -> Trial:
    return Trial(policy=policy, verdict=Verdict.UNKNOWN, reason=why)


class ConfinementCheck:
    """Tries the policies at the start and daily; not confirmed, soon again, then each minute."""

    def __init__(
        self,
        api: Api,
        *,
        node: str,
        namespace: str,
        allow_unconfined: bool = False,
        on_change: Callable[[Confinement], None] = lambda _confinement: None,
    ) -> None:
        """``on_change`` hears the first result and every one with other verdicts."""
        self._api = api
        self._node = node
        self._namespace = namespace
        self._allow_unconfined = allow_unconfined
        self._on_change = on_change
        self._last: Confinement | None = None
        self._retry = FIRST_RETRY_SECONDS

    @property
    def last(self) -> Confinement | None:
        """What was seen last; None before the first check."""
        return self._last

    @property
    def allows_writes(self) -> bool:
        """Whether anything may be written: confined, or told to do without."""
        return self._allow_unconfined or (self._last is not None and self._last.confirmed)

    def check(self, _now: float) -> float:
        """Try the policies; the seconds until the next time."""
        before, now = self._last, tried(self._api, self._node, self._namespace)
        self._last = now
        if before is None or _verdicts(before) != _verdicts(now):
            self._tell(now)
            self._on_change(now)
        if now.confirmed:
            self._retry = FIRST_RETRY_SECONDS
            return CONFIRMED_SECONDS
        wait, self._retry = self._retry, min(2 * self._retry, UNCONFIRMED_SECONDS)
        return wait

    def _tell(self, now: Confinement) -> None:
        if now.confirmed:
            log.info("confined to its own node by admission policies", extra={"node": self._node})
        elif self._allow_unconfined:
            log.warning("writing although not confined", extra={"why": now.reason})
        else:
            log.error("nothing is written until confined", extra={"why": now.reason})


def _verdicts(confinement: Confinement) -> tuple[Verdict, ...]:
    return tuple(trial.verdict for trial in confinement.trials)
