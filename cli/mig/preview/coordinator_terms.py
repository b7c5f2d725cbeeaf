# SPDX-License-Identifier: Apache-2.0
"""How the cluster's coordinator has pods leave, by its Deployment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cli.mig.preview.agent_terms import container_settings, is_part
from fleet.mig_node import DrainMode
from kube.api import Object

_PART: Final = "coordinator"
_DRAIN: Final = "drain"
_CONFIG: Final = "config"


def coordinator_drain(deployments: Sequence[Object]) -> str:
    """The setting ``drain``; empty where it cannot be seen.

    It cannot where there is no such Deployment or there are several, and where a settings file,
    which is not read here, may have it.
    """
    found = [one for one in deployments if is_part(one, _PART)]
    if len(found) != 1:
        return ""
    containers = found[0]["spec"]["template"]["spec"]["containers"]
    container = next((it for it in containers if it["name"] == _PART), None)
    if container is None:
        return ""
    settings = container_settings(container)
    if _DRAIN in settings:
        return settings[_DRAIN]
    return "" if settings.get(_CONFIG) else DrainMode.WAIT
