# SPDX-License-Identifier: Apache-2.0
"""The licences of the packages that gpuscape runs with."""

from __future__ import annotations

import re
from importlib import metadata

from packaging.requirements import Requirement

from tools.markdown import table

_ENVIRONMENT = {"extra": "", "python_version": "3.11", "python_full_version": "3.11.0"} | {
    "sys_platform": "linux",
    "platform_machine": "x86_64",
}
"""Environment for which packages' conditions are evaluated, whatever machine runs this."""


def license_table() -> str:
    """Packages that gpuscape runs with, those they need included."""
    distributions = (
        metadata.distribution(name) for name in sorted(_run_time("gpuscape") - {"gpuscape"})
    )
    return table(
        ("package", "licence"),
        ((package.metadata["Name"], _license(package)) for package in distributions),
    )


def _run_time(name: str) -> set[str]:
    """The package and all that it needs, extras left out."""
    needed, ahead = set(), [name]
    while ahead:
        package = ahead.pop()
        if package in needed:
            continue
        needed.add(package)
        for line in metadata.requires(package) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(_ENVIRONMENT):
                ahead.append(re.sub(r"[-_.]+", "-", requirement.name).lower())
    return needed


def _license(package: metadata.Distribution) -> str:
    """Licence that a package declares: its SPDX expression, else the field, else the classifier."""
    classifiers = package.metadata.get_all("Classifier") or []
    classified = [
        text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")
    ]
    fields = ("License-Expression", "License")
    declared = [package.metadata[field] for field in fields if field in package.metadata]
    return next(filter(None, declared), "") or ", ".join(classified) or "see the package"
