# SPDX-License-Identifier: Apache-2.0
"""Annotations by which somebody says that a pod may not be disturbed. Pure.

Source: Karpenter documentation, "Well-Known Annotations" (on a pod ``true``, or a duration from
its start; other values mean nothing); cluster-autoscaler, utils/drain/drain.go (``false`` alone).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from api import keys
from base.text.go_duration import go_nanoseconds

KARPENTER: Final = "karpenter.sh/do-not-disrupt"
CLUSTER_AUTOSCALER: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def protection(
    annotations: Mapping[str, str], *, autoscalers: bool, age_seconds: float | None
) -> str:
    """The annotation that protects a pod; empty where none does.

    ``autoscalers``: whether those of Karpenter and of cluster-autoscaler count; ``age_seconds``:
    since the pod's start, None where it has not started or that is not known: then a duration
    protects.
    """
    if annotations.get(keys.DO_NOT_DISRUPT, "false").strip().lower() != "false":
        return keys.DO_NOT_DISRUPT
    if not autoscalers:
        return ""
    if annotations.get(CLUSTER_AUTOSCALER) == "false":
        return f"{CLUSTER_AUTOSCALER}: false"
    value = annotations.get(KARPENTER, "")
    seconds = _duration_seconds(value)
    is_young = seconds > 0 and (age_seconds is None or age_seconds < seconds)
    return f"{KARPENTER}: {value}" if value == "true" or is_young else ""


def _duration_seconds(text: str) -> float:
    """A duration as Go writes it, such as ``1h30m``; 0 for other text."""
    try:
        return go_nanoseconds(text) / 1e9
    except ValueError:
        return 0.0
