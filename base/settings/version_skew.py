# SPDX-License-Identifier: Apache-2.0
"""The version of a program and that of the chart or manifests which started it: do they fit?"""

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
"""Chart and manifests have their version in it. No setting, and so without our prefix: a program
that does not know a variable with it does not start, and older ones do not know this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSkew:
    """Both versions, as they are written."""

    image: str
    """The program's own."""
    manifests: str
    """Empty where nothing gives it: a shell, or manifests of one's own."""

    @property
    def is_there(self) -> bool:
        """Both are known, and are not one version."""
        return bool(self.manifests) and self.manifests != self.image

    @property
    def is_supported(self) -> bool:
        """They share a minor version, or one of them is not known.

        Source: docs/releasing.md, "Versions and their support".
        """
        image, manifests = minor_version(self.image), minor_version(self.manifests)
        return image is None or manifests is None or image == manifests

    @property
    def cause(self) -> str:
        """What differs, as a clause of a sentence."""
        return (
            f"the image is gpuscape {self.image}, and its chart or manifests are {self.manifests}"
        )

    @property
    def action(self) -> str:
        """Which of both to change, and where."""
        return (
            f"set the image to {self.manifests} (image.tag of the chart, newTag of a"
            f" kustomization), or apply chart or manifests of {self.image}"
        )


def minor_version(version: str) -> tuple[int, int] | None:
    """``v1.37.1`` as (1, 37); None for what is no version."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return None if match is None else (int(match[1]), int(match[2]))


def of_process(environ: Mapping[str, str], program_version: str) -> VersionSkew:
    """That of a program with this environment."""
    return VersionSkew(image=program_version, manifests=environ.get(VARIABLE, "").strip())


def of_this_process() -> VersionSkew:
    """That of the program which runs here."""
    return of_process(os.environ, metadata.version("gpuscape"))


def report(skew: VersionSkew) -> None:
    """Log one line where the versions are not meant to run together."""
    if not skew.is_supported:
        log.warning(
            "image and manifests of different versions",
            extra={"image": skew.image, "manifests": skew.manifests, "action": skew.action},
        )
