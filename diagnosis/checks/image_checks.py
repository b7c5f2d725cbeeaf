# SPDX-License-Identifier: Apache-2.0
"""Whether image and chart, or manifests, are of versions that run together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from base.settings.version_skew import VARIABLE, VersionSkew
from diagnosis.finding import DoctorFinding, FindingKind, FindingSeverity, finding
from kube.api import Object

VERSION_SKEW: Final = FindingKind(
    name="version-skew",
    severity=FindingSeverity.WARNING,
    cause="The image and the chart or manifests that started it have different minor versions: one"
    " may not know the other's settings, roles or policies.",
    fix="Use one version for both: set the chart's image.tag, or take the chart of the image's"
    " version.",
    page="upgrade.md#image-and-chart",
)

KINDS: Final = (VERSION_SKEW,)
_TAG: Final = re.compile(r":(?P<version>v?\d+\.\d+\.\d+[^/@]*)(@.*)?$")


def skew_findings(about: str, skew: VersionSkew) -> Iterator[DoctorFinding]:
    """The finding about different versions, if they may not run together."""
    if not skew.is_supported:
        yield finding(VERSION_SKEW, about, skew.cause, skew.action)


def image_skew(pod: Object) -> VersionSkew:
    """The skew of a pod's first container, by the tag of its image and by its variable.

    A tag that is no version, or a digest without a tag, gives no version.
    """
    containers: Sequence[Object] = (pod.get("spec") or {}).get("containers") or ({},)
    container = containers[0]
    tag = _TAG.search(str(container.get("image") or ""))
    variables = {
        variable.get("name"): variable.get("value") for variable in container.get("env") or ()
    }
    return VersionSkew(
        image="" if tag is None else tag["version"], manifests=str(variables.get(VARIABLE) or "")
    )
