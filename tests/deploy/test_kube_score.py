# SPDX-License-Identifier: Apache-2.0
"""What kube-score, a program of others, finds in the chart: nothing that has no reason here."""

from __future__ import annotations

import json
import subprocess
from typing import Final

import pytest

from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBE_SCORE
from tests.deploy.chart import ALL_PROGRAMS, rendered

pytestmark = [pytest.mark.cluster, pytest.mark.long]

FINE: Final = 10
"""Grade of what passes a check."""
EVERYWHERE: Final = {
    "CPU limit is not set": "a throttled program answers too late, and requests keep it in place",
    "Ephemeral Storage limit is not set": "roots are read-only: only logs, which a kubelet rotates",
    "Ephemeral Storage request is not set": "the same",
    "ImagePullPolicy is not set to Always": "an admin's choice, and a tag is never built twice",
    "Deployment does not have a host podAntiAffinity set": "topologySpreadConstraints do it",
}
ROOT: Final = "/dev/nvidia* and the kubelet's sockets are root's"
OF_ONE: Final = {
    ("agent", "The container is running with a low user ID"): ROOT,
    ("agent", "The container running with a low group ID"): ROOT,
    ("actuator", "The container is running with a low user ID"): ROOT,
    ("actuator", "The container running with a low group ID"): ROOT,
    ("actuator", "The container is privileged"): "it alone changes MIG layouts: docs/security.md",
    ("kube-scheduler", "Memory limit is not set"): "it grows with the cluster's pods",
}
"""Container and finding, and why that is so."""


def findings(manifests: str) -> set[tuple[str, str]]:
    """Container, or "" of an object as a whole, and what is found there."""
    program = binaries(KUBE_SCORE) / "kube-score"
    done = subprocess.run(
        [program, "score", "--output-format", "json", "-"],
        input=manifests,
        capture_output=True,
        text=True,
        check=False,  # it exits with 1 for what it finds
    )
    return {
        (comment["path"], comment["summary"])
        for scored in json.loads(done.stdout)
        for each in scored["checks"]
        if each["grade"] < FINE and not each["skipped"]
        for comment in each["comments"] or ()
    }


def test_every_finding_has_a_reason_and_every_reason_a_finding() -> None:
    found = findings(rendered(ALL_PROGRAMS))

    assert {each for each in found if each[1] not in EVERYWHERE} == OF_ONE.keys()
    assert EVERYWHERE.keys() <= {summary for _, summary in found}


def test_without_network_policies_that_is_the_only_finding_more() -> None:
    more = findings(rendered({**ALL_PROGRAMS, "networkPolicies": {"enabled": False}}))
    more -= findings(rendered(ALL_PROGRAMS))

    assert more == {("", "The pod does not have a matching NetworkPolicy")}
