# SPDX-License-Identifier: Apache-2.0
"""Whether the version of a program fits that of the chart or manifests that started it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Final

log = logging.getLogger(__name__)

VARIABLE: Final = "MANIFESTS_VERSION"
"""Variable in which chart and manifests give their version. It is no setting and has no prefix of
ours: a program refuses to start with an unknown variable of our prefix, and older programs do not
know this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSkew:
    """The versions of image and manifests, as they are written."""

    image: str
    """The program's own."""
    manifests: str
    """Empty where it is unknown: in a shell, or with manifests that are not ours."""

    @property
    def is_there(self) -> bool:
        """Both versions are known, and they differ."""
        return bool(self.manifests) and self.manifests != self.image

    @property
    def is_supported(self) -> bool:
        """Both versions share a minor version, or one of them is not known.

        Source: docs/releasing.md, "Versions and their support".
        """
        image, manifests = minor_version(self.image), minor_version(self.manifests)
        return image is None or manifests is None or image == manifests

    @property
    def cause(self) -> str:
        """The two versions, as a clause of a sentence."""
        return (
            f"the image is gpuscape {self.image}, and its chart or manifests are {self.manifests}"
        )

    @property
    def action(self) -> str:
        """The fix, as a clause of a sentence: set the image, or apply other manifests."""
        return (
            f"set the image to {self.manifests} (image.tag of the chart, newTag of a"
            f" kustomization), or apply chart or manifests of {self.image}"
        )


def minor_version(version: str) -> tuple[int, int] | None:
    """``v1.37.1`` as (1, 37); None for a text that is no version."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return None if match is None else (int(match[1]), int(match[2]))


def of_process(environ: Mapping[str, str], program_version: str) -> VersionSkew:
    """The skew of a program with this version and environment."""
    return VersionSkew(image=program_version, manifests=environ.get(VARIABLE, "").strip())


def of_this_process() -> VersionSkew:
    """The skew of the program that runs here."""
    return of_process(os.environ, metadata.version("gpuscape"))


def report(skew: VersionSkew) -> None:
    """Log one line where the versions are not meant to run together."""
    if not skew.is_supported:
        log.warning(
            "image and manifests of different versions",
            extra={"image": skew.image, "manifests": skew.manifests, "action": skew.action},
        )
