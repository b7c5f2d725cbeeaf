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
from forecast.agent_terms import CONFIG, settings_of_part
from kube.api import Object

_PART: Final = "coordinator"
_DRAIN: Final = "drain"
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
    settings = settings_of_part(deployments, _PART)
    if settings is None:
        return CoordinatorTerms()
    default_drain = "" if settings.get(CONFIG) else DrainMode.WAIT
    return CoordinatorTerms(
        drain=settings.get(_DRAIN, default_drain),
        evictions=DrainSettings(ignore_autoscaler_marks=_is_on(settings.get(_IGNORE_MARKS))),
    )


def deployed_settings(deployments: Sequence[Object]) -> CoordinatorSettings | None:
    """All settings by the coordinator's Deployment.

    None where they are not known: as for :func:`coordinator_terms`, and where one has no plain text
    in the manifest or a value that the coordinator would refuse.
    """
    written = settings_of_part(deployments, _PART)
    if written is None or written.get(CONFIG):
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


def _is_on(text: str | None) -> bool:
    """Whether a switch is on; for an argument without a value ``text`` may be the next argument."""
    if text is None:
        return False
    return text == "" or text.startswith("--") or text.lower() == "true"
