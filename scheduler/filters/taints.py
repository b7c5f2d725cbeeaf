# SPDX-License-Identifier: Apache-2.0
"""Taints of a node, and the tolerations of a pod. Pure.

Source: k8s.io/api, core/v1/toleration.go; k8s.io/component-helpers, scheduling/corev1/helpers.go;
both of 1.37, with the same meaning in 1.32. The operators Lt and Gt of 1.35 are off by default
(feature gate TaintTolerationComparisonOperators) and tolerate nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from base.words import did_you_mean, quoted
from kube.objects.node import Taint
from kube.objects.pod_constraints import Toleration

EXISTS: Final = "Exists"
EQUAL: Final = "Equal"
KEEPING_OFF: Final = ("NoSchedule", "NoExecute")
"""Effects for which the scheduler leaves a node out."""
EFFECTS: Final = (*KEEPING_OFF, "PreferNoSchedule")
OFF_BY_DEFAULT: Final = ("Lt", "Gt")
CORDONED: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""Taint of a cordoned node: a pod that tolerates it may run there."""


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> tuple[Taint, ...]:
    """The taints that keep a pod with these tolerations off the node; the scheduler says which is
    the first."""
    return tuple(
        taint
        for taint in taints
        if taint.effect in KEEPING_OFF and not is_tolerated(taint, tolerations)
    )


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Whether one of the tolerations is for this taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def toleration_faults(tolerations: Sequence[Toleration]) -> Iterator[str]:
    """A sentence for each toleration that the API server refuses, which names its key."""
    for index, toleration in enumerate(tolerations):
        place = f"spec.tolerations[{index}]"
        known = (EXISTS, EQUAL, *OFF_BY_DEFAULT)
        if toleration.operator not in ("", *known):
            close = did_you_mean(toleration.operator, known)
            yield f"{place}.operator is {quoted(toleration.operator)}, not Exists or Equal{close}"
        elif not toleration.key and toleration.operator != EXISTS:
            yield f"{place}.key is missing: only operator Exists goes without"
        elif toleration.operator == EXISTS and toleration.value:
            yield f"{place}.value is {quoted(toleration.value)}: operator Exists takes none"
        if toleration.effect and toleration.effect not in EFFECTS:
            close = did_you_mean(toleration.effect, EFFECTS)
            yield f"{place}.effect is {quoted(toleration.effect)}, not {', '.join(EFFECTS)}{close}"


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", EQUAL):
        return toleration.value == taint.value
    return toleration.operator == EXISTS
