# SPDX-License-Identifier: Apache-2.0
"""How the cluster's coordinator has pods leave, by its Deployment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cli.mig.preview.agent_terms import container_settings, is_part
from fleet.drain.drain_plan import DrainTerms
from fleet.mig_node import DrainMode
from kube.api import Object

_PART: Final = "coordinator"
_DRAIN: Final = "drain"
_CONFIG: Final = "config"
_IGNORE_MARKS: Final = "ignore-autoscaler-marks"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorTerms:
    """What the coordinator's settings say of how pods leave."""

    drain: str = ""
    """The setting ``drain``; empty where it cannot be seen."""
    evictions: DrainTerms = field(default_factory=DrainTerms)
    """What may be evicted; the cautious default where it cannot be seen."""


def coordinator_terms(deployments: Sequence[Object]) -> CoordinatorTerms:
    """What is set in the coordinator's Deployment.

    It cannot be seen where there is no such Deployment or there are several, and where a settings
    file, which is not read here, may have it.
    """
    found = [one for one in deployments if is_part(one, _PART)]
    if len(found) != 1:
        return CoordinatorTerms()
    containers = found[0]["spec"]["template"]["spec"]["containers"]
    container = next((it for it in containers if it["name"] == _PART), None)
    if container is None:
        return CoordinatorTerms()
    settings = container_settings(container)
    usual = "" if settings.get(_CONFIG) else DrainMode.WAIT
    return CoordinatorTerms(
        drain=settings.get(_DRAIN, usual),
        evictions=DrainTerms(ignore_autoscaler_marks=_is_on(settings.get(_IGNORE_MARKS))),
    )


def _is_on(text: str | None) -> bool:
    """Whether a switch is on; as an argument it has no value, and the next one may follow."""
    if text is None:
        return False
    return text == "" or text.startswith("--") or text.lower() == "true"
