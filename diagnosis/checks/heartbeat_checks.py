# SPDX-License-Identifier: Apache-2.0
"""The agent's Lease, and who stops the agent: seen from the node and from outside. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.cluster.heartbeat import DURATION_SECONDS
from agent.cluster.release_signals import ReleaseSignals
from base.text import rfc3339
from diagnosis.finding import DoctorFinding, FindingKind, FindingSeverity, finding
from kube.api import Object
from kube.lease import Lease, LeaseSpec

LEASE_MISSING: Final = FindingKind(
    name="lease-missing",
    severity=FindingSeverity.ERROR,
    cause="No agent has a Lease for this Node: no agent runs there, or it has no right to write.",
    fix="`kubectl -n gpuscape get pods -o wide`, then the log of the node's agent.",
    page="runbooks/GpuscapeNodeWithoutAgent.md",
)
LEASE_RELEASED: Final = FindingKind(
    name="lease-released",
    severity=FindingSeverity.WARNING,
    cause="The agent has ended and released its Lease; no other agent has taken it.",
    fix="`kubectl -n gpuscape get pods -o wide`: wait for the next agent, or find out why there is"
    " none.",
    page="runbooks/GpuscapeAgentDown.md",
)
LEASE_STALE: Final = FindingKind(
    name="lease-stale",
    severity=FindingSeverity.ERROR,
    cause="The agent's Lease has expired: the agent hangs, or cannot reach the API server."
    " Schedulers treat its data as old.",
    fix="The log of the node's agent has the reason; restart its pod if it hangs.",
    page="runbooks/GpuscapeLeaseNotHeld.md",
)
LEASE_OF_OTHER: Final = FindingKind(
    name="lease-held-by-other",
    severity=FindingSeverity.WARNING,
    cause="Another agent holds this node's Lease, so this one only reads.",
    fix="Find the second agent: `kubectl get pods -A -o wide | grep gpuscape`, and remove one.",
    page="runbooks/GpuscapeLeaseNotHeld.md",
)
RELEASED: Final = FindingKind(
    name="gpus-released",
    severity=FindingSeverity.WARNING,
    cause="The Node requests the release of its GPUs: the agent reads nothing meanwhile.",
    fix="Wait for the driver upgrade or MIG change to end; remove the annotation or label if it is"
    " a leftover.",
    page="runbooks/GpuscapeReleasedTooLong.md",
)
WRITES_STOPPED: Final = FindingKind(
    name="writes-stopped",
    severity=FindingSeverity.WARNING,
    cause="An admission policy of the chart stops everything that gpuscape writes to the cluster.",
    fix="`helm upgrade --reuse-values --set writes=true`, once the reason is gone.",
    page="helm.md#stop-all-writes",
)

KINDS: Final = (
    *(LEASE_MISSING, LEASE_RELEASED, LEASE_STALE, LEASE_OF_OTHER, RELEASED, WRITES_STOPPED),
)


def lease_findings(
    node: str, lease: Lease | None, now: float, own: str | None
) -> Iterator[DoctorFinding]:
    """Findings about the agent's Lease; ``now`` by the server's clock, ``own``: our pod's UID."""
    spec = LeaseSpec() if lease is None else lease.spec
    holder, renewed = spec.holder_identity, rfc3339.unix_seconds(spec.renew_time)
    if lease is None:
        yield finding(LEASE_MISSING, node, f"no agent has a Lease for {node}")
    elif not holder:
        yield finding(LEASE_RELEASED, node, f"nobody holds the Lease of {node}")
    elif renewed is not None and now - renewed > DURATION_SECONDS:
        sentence = f"{holder} renewed the Lease {now - renewed:.0f} s ago; it holds for 180 s"
        yield finding(LEASE_STALE, node, sentence)
    elif own is not None and holder != own:
        yield finding(LEASE_OF_OTHER, node, f"{holder} holds the Lease, but this agent is {own}")


def released_findings(node: Object) -> Iterator[DoctorFinding]:
    """The findings about requests to leave the GPUs alone."""
    causes = ReleaseSignals("driver-ready").causes(node, None)
    if causes:
        yield finding(RELEASED, node["metadata"]["name"], "; ".join(causes))
