# SPDX-License-Identifier: Apache-2.0
"""Annotations by which somebody says that a pod may not be disturbed. Pure.

Source: Karpenter documentation, "Well-Known Annotations" (on a pod ``true``, or a duration from
its start; other values mean nothing); cluster-autoscaler, utils/drain/drain.go (``false`` alone).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from api import keys

KARPENTER: Final = "karpenter.sh/do-not-disrupt"
CLUSTER_AUTOSCALER: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"

_PART: Final = r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|ms|s|m|h)"
_DURATION: Final = re.compile(rf"(?:{_PART}){{1,8}}")
_SECONDS: Final[Mapping[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}


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
    is_young = seconds is not None and (age_seconds is None or age_seconds < seconds)
    return f"{KARPENTER}: {value}" if value == "true" or is_young else ""


def _duration_seconds(text: str) -> float | None:
    """A duration as Go writes it, such as ``1h30m``; None for other text."""
    if _DURATION.fullmatch(text) is None:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, text))
