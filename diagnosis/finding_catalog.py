# SPDX-License-Identifier: Apache-2.0
"""Every kind of finding, by the command that makes it: the documented table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from diagnosis.checks import (
    cluster_checks,
    credential_checks,
    gpu_checks,
    kubelet_checks,
    placement_checks,
    pod_checks,
    remote_node_checks,
    rival_checks,
    settings_checks,
)
from diagnosis.facts.local_facts import LocalFacts
from diagnosis.finding import Check, FindingKind

CATALOG: Final[Mapping[str, tuple[FindingKind, ...]]] = {
    "gpus": gpu_checks.KINDS,
    "kubelet": kubelet_checks.KINDS,
    "cluster": cluster_checks.KINDS,
    "others": (*rival_checks.KINDS, *credential_checks.KINDS, *settings_checks.KINDS),
    "node": remote_node_checks.KINDS,
    "pod": (*pod_checks.KINDS, *placement_checks.KINDS),
}
"""Subject to its kinds, as the page lists them."""

LOCAL_CHECKS: Final[tuple[Check[LocalFacts], ...]] = (
    *gpu_checks.CHECKS,
    *kubelet_checks.CHECKS,
    *cluster_checks.CHECKS,
    *rival_checks.CHECKS,
    *credential_checks.CHECKS,
    *settings_checks.CHECKS,
)
POD_CHECKS: Final = (*pod_checks.CHECKS, *placement_checks.CHECKS)
NODE_CHECKS: Final = remote_node_checks.CHECKS
