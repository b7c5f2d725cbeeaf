# SPDX-License-Identifier: Apache-2.0
"""Labels of the driver: its version, and the newest CUDA it supports."""

from __future__ import annotations

from api import keys
from discovery.model import Driver, NodeSnapshot
from labelers.decision import Absent, Decision, Decisions, Keep, gap_text, value
from labelers.groups.labelled_gpus import nvidia_part, without_gpus
from labelers.label_settings import LabelSettings


def driver_labels(snapshot: NodeSnapshot, _: LabelSettings) -> Decisions:
    """Each version under its old and its new keys; kept as they are while the driver is silent."""
    none = without_gpus(nvidia_part(snapshot))
    if none is not None:
        return {key.name: none for key in keys.DRIVER}
    parts = _parts(snapshot.driver)
    return {f"nvidia.com/cuda.{part}": decision for part, decision in parts.items()}


def _parts(driver: Driver) -> dict[str, Decision]:
    major, minor, revision, full = _version(driver)
    cuda_major, cuda_minor, cuda = _cuda(driver)
    return {
        "driver.major": major,
        "driver.minor": minor,
        "driver.rev": revision,
        "driver-version.major": major,
        "driver-version.minor": minor,
        "driver-version.revision": revision,
        "driver-version.full": full,
        "runtime.major": cuda_major,
        "runtime.minor": cuda_minor,
        "runtime-version.major": cuda_major,
        "runtime-version.minor": cuda_minor,
        "runtime-version.full": cuda,
    }


def _version(driver: Driver) -> tuple[Decision, Decision, Decision, Decision]:
    """Parts as they stand, leading zeros kept; an empty revision where there are two."""
    if driver.version is None:
        unknown = Keep(reason=gap_text(driver.gaps, "version"))
        return unknown, unknown, unknown, unknown
    parts = driver.version.split(".")
    full = value(driver.version)
    if len(parts) not in (2, 3):
        odd = Absent(reason=f"driver version {driver.version!r} is not of the form X.Y or X.Y.Z")
        return odd, odd, odd, full
    major, minor, *rest = parts
    return value(major), value(minor), value(rest[0] if rest else ""), full


def _cuda(driver: Driver) -> tuple[Decision, Decision, Decision]:
    if driver.cuda_version is None:
        unknown = Keep(reason=gap_text(driver.gaps, "cuda_version"))
        return unknown, unknown, unknown
    major, minor = driver.cuda_version
    return value(major), value(minor), value(f"{major}.{minor}")
