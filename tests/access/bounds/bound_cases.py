# SPDX-License-Identifier: Apache-2.0
"""Exactly the most that a policy allows and one more; what differs from the allowed in one field.

The numbers stand here as the documentation has them, so that a bound that moves is noticed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.access.ask import Ask, Case, annotation, label, merge, post
from tests.access.certificate_cases import SECRETS, as_data
from tests.access.node_cases import NODE, mig_labels
from tests.access.object_cases import (
    EVENTS,
    FEATURE,
    LEASE,
    LEASES,
    NAMED,
    OWN_NODE,
    SELF,
    STATE,
    event,
    lease,
)
from tests.access.other_cases import PERMIT, eviction
from tests.access.permit_cases import CORDON_MARK, CORDONED, PERMITTED
from tests.access.program_cases import LAYOUT, MARK

_NODE = "gpuscape-agent-node"
_LEASE = "gpuscape-agent-lease"
_FEATURE = "gpuscape-agent-nodefeature"
_COORDINATOR = "gpuscape-coordinator-node"
_SLOTS = "gpuscape-coordinator-lease"
_SECRET = f"{SECRETS}/gpuscape-scheduler-tls"
_TOPOLOGY = "gpuscape.io/topology"

LABELS_LEFT = 250
"""Of 256: six of the Node's labels have one of our prefixes from the beginning."""
_NO_LAYOUT = merge(NODE, {"metadata": {"annotations": {LAYOUT: None}}}, manager="kubectl-annotate")
_LAID_OUT = merge(
    NODE,
    {"metadata": {"annotations": {LAYOUT: "all-balanced", MARK: "small/0123456789"}}},
    manager="gpuscape-coordinator",
)
_LEASE_LABELS = ("component", "instance", "managed-by", "name", "part-of", "version")


def _case(name: str, ask: Ask, only: str = "", *, actor: str = "agent", **more: Any) -> Case:
    return Case(name=name, ask=ask, only=only, actor=actor, **more)


def _coordinator(name: str, ask: Ask, only: str = "", **more: Any) -> Case:
    return _case(name, ask, only, actor="coordinator", **more)


def _owned_by(**different: str) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{**OWN_NODE, **different}]}}


def _owners(path: str, policy: str) -> list[Case]:
    """Owners that differ from the agent's Node in one field."""
    return [
        _case(f"{policy}: owner of {what}", merge(path, _owned_by(**it)), f"{policy}/owner")
        for what, it in (
            ("another API group", {"apiVersion": "example.com/v1"}),
            ("another version", {"apiVersion": "v2"}),
            ("another kind", {"kind": "ConfigMap"}),
            ("another name", {"name": "$other"}),
        )
    ]


def _permit(characters: int) -> dict[str, Any]:
    return annotation(PERMIT, "x" * characters)


def _mark(text: str) -> dict[str, Any]:
    there = PERMITTED["metadata"]["annotations"]
    return {**PERMITTED, "metadata": {"annotations": {**there, CORDON_MARK: text}}}


def _certificate(size: int) -> Ask:
    """So many bytes: the API has four characters for three of them, and counts these."""
    return merge(_SECRET, {"data": {"ca.crt": as_data("x" * size)}})


_DRY = "dryRun=All"

REFUSED = {
    "bounds": [
        *_owners(LEASE, _LEASE),
        *_owners(FEATURE, _FEATURE),
        _case(
            "257 labels under our prefixes",
            merge(NODE, {"metadata": {"labels": mig_labels(LABELS_LEFT + 1)}}),
            f"{_NODE}/label-count",
        ),
        _case(
            "8,193 characters of annotations",
            merge(NODE, annotation(_TOPOLOGY, "x" * 8193)),
            f"{_NODE}/annotation-size",
        ),
        _case(
            "8,193 characters of annotations together",
            merge(
                NODE,
                {
                    "metadata": {
                        "annotations": {_TOPOLOGY: "x" * 8192, "gpuscape.io/mig-status": "x"}
                    }
                },
            ),
            f"{_NODE}/annotation-size",
        ),
        _case(
            "a foreign annotation in a dry run",
            replace(merge(NODE, annotation("example.com/new")), query=_DRY),
            f"{_NODE}/annotations",
        ),
        _case(
            "a permit in a dry run: what holds everybody off is what refuses",
            replace(merge(NODE, annotation(PERMIT)), query=_DRY),
            "gpuscape-mig-permit/permit",
        ),
        _case(
            "state of 16,385", merge(LEASE, annotation(STATE, "x" * 16_385)), f"{_LEASE}/state-size"
        ),
        _case(
            "257 labels in a NodeFeature",
            merge(FEATURE, {"spec": {"labels": mig_labels(256)}}),
            f"{_FEATURE}/label-count",
        ),
        _case(
            "too much by one byte",
            _certificate(49_153),
            "gpuscape-certificates-secret/size",
            actor="certificates",
        ),
        *(
            _coordinator(
                f"mark of {len(text)}: {text[-2:]}",
                merge(NODE, _mark(text)),
                f"{_COORDINATOR}/mark",
            )
            for text in ("0" * 15, "0" * 17, "0" * 15 + "F", "0" * 15 + "g")
        ),
        _coordinator(
            "mark of the fleet policy removed",
            merge(NODE, annotation(MARK, None)),
            f"{_COORDINATOR}/layout",
            before=(_NO_LAYOUT, _LAID_OUT),
        ),
        _coordinator(
            "switch that was not there",
            merge(NODE, label("nvidia.com/gpu.deploy.driver", "paused-for-mig-change")),
            f"{_COORDINATOR}/labels",
        ),
        _coordinator(
            "slot of seven digits",
            post(LEASES, lease("mig-slot-1000000")),
            f"{_SLOTS}/name",
        ),
        _coordinator("slot with a minus", post(LEASES, lease("mig-slot--1")), f"{_SLOTS}/name"),
    ]
}
ALLOWED = {
    "bounds": [
        _case(
            "256 labels under our prefixes",
            merge(NODE, {"metadata": {"labels": mig_labels(LABELS_LEFT)}}),
        ),
        _case(
            "8,192 characters of annotations together",
            merge(
                NODE,
                {
                    "metadata": {
                        "annotations": {_TOPOLOGY: "x" * 8191, "gpuscape.io/mig-status": "x"}
                    }
                },
            ),
        ),
        _case("a term of 600 seconds", merge(LEASE, {"spec": {"leaseDurationSeconds": 600}})),
        _case(
            "every label of a Lease",
            merge(
                LEASE,
                {"metadata": {"labels": {f"app.kubernetes.io/{it}": "x" for it in _LEASE_LABELS}}},
            ),
        ),
        _case(
            "an Event about a Node whose UID has 64 characters",
            post(EVENTS.format("default"), event(NAMED, {**SELF, "uid": "x" * 64})),
        ),
        _case("as much as there may be", _certificate(49_152), actor="certificates"),
        _coordinator("permit of 256 characters", merge(NODE, _permit(256))),
        _coordinator("mark of 16 digits", merge(NODE, _mark("0123456789abcdef"))),
        _coordinator(
            "every label of a slot",
            merge(
                f"{LEASES}/mig-slot-0",
                {"metadata": {"labels": {f"app.kubernetes.io/{it}": "x" for it in _LEASE_LABELS}}},
            ),
        ),
        _coordinator(
            "Event about a pod",
            post(
                EVENTS.format("$ns"),
                event(
                    "$new",
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": "workload",
                        "namespace": "$ns",
                        "uid": "$workloaduid",
                    },
                    reporter="gpuscape-coordinator",
                ),
            ),
        ),
        Case(
            name="the coordinator of another installation removes what it has begun",
            ask=merge(NODE, {"metadata": {"annotations": {PERMIT: None, CORDON_MARK: None}}}),
            actor="coordinator-elsewhere",
            before=(CORDONED,),
        ),
        _coordinator(
            "eviction of a pod of the namespace that only begins like a protected one",
            replace(eviction("guest", of="$elsewhere", uid="$guestuid"), query=_DRY),
        ),
    ]
}
