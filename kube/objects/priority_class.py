# SPDX-License-Identifier: Apache-2.0
"""PriorityClasses as the API server writes them. Pure. Source: k8s.io/api, scheduling/v1."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kube.objects.pod import PodSpec
from kube.objects.typed_object import Metadata, TypedObject


class PriorityClass(TypedObject, frozen=True):
    """A v1.PriorityClass."""

    metadata: Metadata = Metadata()
    value: int = 0
    global_default: bool = False
    """It is for pods that name no class."""
    preemption_policy: str = ""


def with_priority(spec: PodSpec, classes: Iterable[PriorityClass]) -> PodSpec:
    """The spec with the priority that admission gives it where these are the cluster's classes.

    Unchanged where it has one, and where it names a class that is not there: the API server
    refuses such a pod. Of several default classes the lowest counts.
    """
    if spec.priority is not None:
        return spec
    named = [
        class_
        for class_ in classes
        if (
            class_.metadata.name == spec.priority_class_name
            if spec.priority_class_name
            else class_.global_default
        )
    ]
    if spec.priority_class_name and not named:
        return spec
    class_ = min(named, key=lambda found: found.value, default=PriorityClass())
    policy = spec.preemption_policy or class_.preemption_policy
    return msgspec.structs.replace(spec, priority=class_.value, preemption_policy=policy)
