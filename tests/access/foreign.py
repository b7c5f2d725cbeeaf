# SPDX-License-Identifier: Apache-2.0
"""Somebody else's DaemonSet, which may write all Nodes and their status, as many may."""

from __future__ import annotations

from api import names
from tests.controlplane.server import Object

ACCOUNT = "other-daemon"
_RBAC = "rbac.authorization.k8s.io"


def objects(namespace: str, elsewhere: str) -> tuple[Object, ...]:
    """Its account in ``namespace``, and its role.

    The coordinator's namesake in the namespace ``elsewhere`` has the same role.
    """
    name = f"{ACCOUNT}.{namespace}"
    rule = {
        "apiGroups": [""],
        "resources": ["nodes", "nodes/status"],
        "verbs": ["get", "create", "patch", "update"],
    }
    subjects = [
        {"kind": "ServiceAccount", "name": account, "namespace": place}
        for account, place in ((ACCOUNT, namespace), (names.COORDINATOR, elsewhere))
    ]
    return (
        {"kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}},
        {"kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]},
        {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": subjects,
        },
    )
