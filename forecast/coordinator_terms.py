# SPDX-License-Identifier: Apache-2.0
"""The coordinator's settings for how pods leave a node, from its Deployment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from base.errors import BadInput
from fleet.coordinator_settings import COORDINATOR_SETTINGS, CoordinatorSettings
from fleet.drain.drain_plan import DrainSettings
from fleet.mig_node import DrainMode
from forecast.agent_terms import container_settings, is_part
from kube.api import Object

_PART: Final = "coordinator"
_DRAIN: Final = "drain"
_CONFIG: Final = "config"
_IGNORE_MARKS: Final = "ignore-autoscaler-marks"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorTerms:
    """The coordinator's settings for how pods leave a node."""

    drain: str = ""
    """Setting ``drain``; empty where it is not known."""
    evictions: DrainSettings = field(default_factory=DrainSettings)
    """Pods that may be evicted; the cautious default where the settings are not known."""


def coordinator_terms(deployments: Sequence[Object]) -> CoordinatorTerms:
    """Read the settings from the coordinator's Deployment.

    They are not known where there is no such Deployment or several, nor where a settings file may
    contain them, since it is not read here.
    """
    settings = _written(deployments)
    if settings is None:
        return CoordinatorTerms()
    default_drain = "" if settings.get(_CONFIG) else DrainMode.WAIT
    return CoordinatorTerms(
        drain=settings.get(_DRAIN, default_drain),
        evictions=DrainSettings(ignore_autoscaler_marks=_is_on(settings.get(_IGNORE_MARKS))),
    )


def deployed_settings(deployments: Sequence[Object]) -> CoordinatorSettings | None:
    """All settings by the coordinator's Deployment.

    None where they are not known: as for :func:`coordinator_terms`, and where one has no plain text
    in the manifest or a value that the coordinator would refuse.
    """
    written = _written(deployments)
    if written is None or written.get(_CONFIG):
        return None
    flags = {
        option.name: ("true" if _is_on(written[option.name]) else "false")
        if option.is_flag
        else written[option.name]
        for option in COORDINATOR_SETTINGS.options
        if option.name in written
    }
    try:
        return COORDINATOR_SETTINGS.load(flags, {})
    except BadInput:
        return None


def _written(deployments: Sequence[Object]) -> dict[str, str] | None:
    """Settings of the one Deployment as written; None where there is none, or several."""
    coordinators = [deployment for deployment in deployments if is_part(deployment, _PART)]
    if len(coordinators) != 1:
        return None
    containers = coordinators[0]["spec"]["template"]["spec"]["containers"]
    container = next((candidate for candidate in containers if candidate["name"] == _PART), None)
    return None if container is None else container_settings(container)


def _is_on(text: str | None) -> bool:
    """Whether a switch is on; for an argument without a value ``text`` may be the next argument."""
    if text is None:
        return False
    return text == "" or text.startswith("--") or text.lower() == "true"
