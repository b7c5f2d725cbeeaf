# SPDX-License-Identifier: Apache-2.0
"""Policies on what the coordinator keeps and asks for: its Leases, evictions, Events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api import keys, limits, names
from api.key_kinds import KeyLocation, Writer
from fleet.coordinator_settings import CoordinatorSettings
from fleet.slot_lease import PARKING
from kube import api
from tools.access import cel
from tools.access.cel import Expression
from tools.access.nodes import changed_but, removes
from tools.access.objects import FINALIZERS, LEASE_LABELS, events, holder
from tools.access.policy import Policy, Rule, none_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorBounds:
    """How far the coordinator may go in one cluster, as an admin chooses."""

    slots: int = CoordinatorSettings().slots
    """Slots that the coordinator makes: its setting ``slots``."""
    protected: tuple[str, ...] = ("kube-system", "gpu-operator")
    """Namespaces, besides its own, of whose pods it has none evicted but a device plugin's."""
    plugin_pods: tuple[str, ...] = (
        "kube-system/nvidia-device-plugin-",
        "kube-system/nvdp-nvidia-device-plugin-",
        "gpu-operator/nvidia-device-plugin-",
    )
    """Namespace, a slash, and how the names of a device plugin's pods begin there. Source:
    NVIDIA k8s-device-plugin, README and chart; gpu-operator, assets/state-device-plugin."""


COORDINATOR_ANNOTATIONS = cel.owned(KeyLocation.LEASE_ANNOTATION, Writer.COORDINATOR)
# no zeros before a number: else there would be no end of names
_IS_SLOT = cel.matches("object.metadata.name", f"{names.SLOT_LEASE_PREFIX}(0|[1-9][0-9]{{0,5}})")
_SLOT = f"int(object.metadata.name.substring({len(names.SLOT_LEASE_PREFIX)}))"
MOST_PARKED = 100
"""Records of nodes whose slot is free again, all of them of changes that could not be undone."""


def lease_variables(bounds: CoordinatorBounds) -> Mapping[str, Expression]:
    """Variables of the policy on the coordinator's Leases that follow from the bounds."""
    return {"slots": str(bounds.slots)}


def eviction_variables(bounds: CoordinatorBounds) -> Mapping[str, Expression]:
    """Variables of the policy on the coordinator's evictions that follow from the bounds."""
    return {
        "protected": cel.in_lines(bounds.protected),
        "plugins": cel.in_lines(bounds.plugin_pods),
    }


def _record_size(annotations: Expression) -> Expression:
    return f"{annotations}[?{cel.quoted(keys.MIG_ROLLBACK_RECORD)}].orValue('').size()"


def _rollouts_size(annotations: Expression) -> Expression:
    return f"{annotations}[?{cel.quoted(keys.MIG_ROLLOUTS)}].orValue('').size()"


COORDINATOR_LEASE = Policy(
    name=f"{names.COORDINATOR}-lease",
    holder=names.COORDINATOR,
    group=api.LEASES.group,
    resources=(api.LEASES.plural,),
    variables={
        **lease_variables(CoordinatorBounds()),
        "foreignLabels": changed_but("Labels", f"k in {cel.listed(LEASE_LABELS)}"),
        # a slot has its record, and the leader's Lease what else there is
        "foreignAnnotations": changed_but(
            "Annotations",
            cel.any_of(
                cel.all_of(
                    cel.one_of("k", COORDINATOR_ANNOTATIONS),
                    f"(k == {cel.quoted(keys.MIG_ROLLBACK_RECORD)}) == {_IS_SLOT}",
                ),
                removes(keys.FORMER_MIG_ROLLBACK_RECORD),
            ),
        ),
    },
    rules=(
        Rule(
            name="name",
            holds=cel.any_of(
                f"object.metadata.name == {cel.quoted(names.COORDINATOR_LEASE)}", _IS_SLOT
            ),
            message="the coordinator writes its slots and its own Lease only",
        ),
        Rule(
            name="slots",
            holds=cel.any_of(
                "request.operation != 'CREATE'",
                f"!{_IS_SLOT}",
                f"{_SLOT} < variables.slots",
                f"({_SLOT} >= {PARKING} && {_SLOT} < {PARKING + MOST_PARKED})",
            ),
            message="no more slots are made than the policy was generated for",
            culprits="['slots: ' + string(variables.slots)]",
        ),
        none_of("labels", "variables.foreignLabels", "not labels of a Lease of the coordinator"),
        none_of(
            "annotations",
            "variables.foreignAnnotations",
            "not annotations of this Lease of the coordinator",
        ),
        Rule(
            name="record-size",
            holds=cel.bounded(_record_size, "annotations", limits.MOST_RECORD_CHARACTERS),
            message=f"{keys.MIG_ROLLBACK_RECORD} has at most {limits.MOST_RECORD_CHARACTERS}"
            " characters",
        ),
        Rule(
            name="rollouts-size",
            holds=cel.bounded(_rollouts_size, "annotations", limits.MOST_ROLLOUTS_CHARACTERS),
            message=f"{keys.MIG_ROLLOUTS} has at most {limits.MOST_ROLLOUTS_CHARACTERS} characters",
        ),
        holder(limits.MOST_NODE_NAME_CHARACTERS),
        FINALIZERS,
        Rule(
            name="owners",
            # one that does not exist has the slot deleted, and the record in it
            holds=" ==\n".join(
                f"{version}.metadata.?ownerReferences.orValue([])"
                for version in ("object", "variables.before")
            ),
            message="no owner may be added or removed",
        ),
    ),
)

COORDINATOR_EVICTION = Policy(
    name=f"{names.COORDINATOR}-eviction",
    holder=names.COORDINATOR,
    group="",
    resources=("pods/eviction",),
    operations=("CREATE",),
    variables={
        **eviction_variables(CoordinatorBounds()),
        "options": "dyn(object).?deleteOptions.orValue({})",
        "evicted": "request.?namespace.orValue('') + '/' + request.?name.orValue('')",
    },
    rules=(
        Rule(
            name="protected",
            holds=cel.any_of(
                "!(request.?namespace.orValue('') in variables.protected ||"
                " request.?namespace.orValue('') == variables.home)",
                "variables.plugins.exists(p, variables.evicted.startsWith(p))",
            ),
            message="in protected namespaces only pods of device plugins are evicted",
            culprits="[variables.evicted]",
        ),
        Rule(
            name="pod",
            # else the pod that has the name by then goes, which nobody looked at
            holds="variables.options.?preconditions.?uid.orValue('') != ''",
            message="an eviction names the pod's UID",
        ),
        Rule(
            name="options",
            # a grace period of 0 kills at once
            holds="variables.options.all(k, k in"
            f" {cel.listed(('apiVersion', 'kind', 'preconditions', 'dryRun'))})",
            message="an eviction leaves the pod its own grace period and all other options",
        ),
    ),
)

COORDINATOR_EVENT = events(
    names.COORDINATOR,
    Rule(
        name="subject",
        holds=f"variables.subject.?kind.orValue('') in {cel.listed(('Node', 'Pod'))}",
        message="the coordinator's Events are about Nodes and pods",
    ),
)
