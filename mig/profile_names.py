# SPDX-License-Identifier: Apache-2.0
"""Names of MIG devices as people and tools write them: ``1g.5gb``, ``1c.3g.20gb``, ``1g.10gb+me``.

Layouts are copied from other GPUs. There the same name may stand for another size, so what is
proposed for an unknown name is as many slices with this GPU's own memory, and never the name that
looks most alike.

Source: mig-parted's configuration format, v1; MIG user guide, "Device names".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from base.errors import BadInput
from base.words import did_you_mean, meant, quoted

_FORM = re.compile(r"(?:([1-9][0-9]?)c\.)?([1-9][0-9]?)g\.([0-9]{1,5})gb(?:([+-])(.*))?", re.ASCII)
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z0-9]+)*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceName:
    """A MIG device's name in its parts."""

    compute: int
    """Slices of the compute instance."""
    instance: str
    """Name of the GPU instance's profile, ``3g.20gb``: what the driver creates first."""
    slices: int
    """Compute slices of the GPU instance."""
    gigabytes: int
    """Memory of the GPU instance, as its name has it."""
    attributes: str = ""
    """Attributes with their sign: ``+me``; empty: none."""

    @property
    def whole(self) -> bool:
        """Whether the compute instance takes all of its GPU instance."""
        return self.compute == self.slices

    def __str__(self) -> str:
        """The canonical name: with compute slices only if they are a part of the instance."""
        return self.instance if self.whole else f"{self.compute}c.{self.instance}"


def device_name(text: str) -> DeviceName:
    """The name in its parts; ``7c.7g.40gb`` is the same as ``7g.40gb``.

    Only the form is checked, not whether any GPU has such a profile. Raises BadInput.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadInput(f"{quoted(text)} is no MIG profile; they look like 1g.10gb or 1c.3g.20gb+me")
    compute, slices, gigabytes, sign, attributes = match.groups()
    if sign is not None:
        _check_attributes(text, attributes)
    count = int(slices)
    parts = count if compute is None else int(compute)
    if parts > count:
        raise BadInput(f"{quoted(text)}: {parts} compute slices do not fit into {count}")
    tail = "" if sign is None else sign + attributes
    return DeviceName(
        compute=parts,
        instance=f"{count}g.{int(gigabytes)}gb{tail}",
        slices=count,
        gigabytes=int(gigabytes),
        attributes=tail,
    )


def part_name(profile: str, slices: int) -> str:
    """Name of a MIG device: a compute instance of so many slices in an instance of the profile."""
    return str(replace(device_name(profile), compute=slices))


def _check_attributes(text: str, attributes: str) -> None:
    """Check that attributes have letters, digits and dots, begin with a letter, and stand once.

    Raises BadInput.
    """
    names = attributes.split(",")
    for name in names:
        if _ATTRIBUTE.fullmatch(name) is None:
            raise BadInput(f"{quoted(text)}: {quoted(name)} is no attribute of a MIG profile")
    if len(set(names)) != len(names):
        raise BadInput(f"{quoted(text)}: an attribute stands twice")


def profile_hint(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of a message about an unknown name: a proposal, or empty.

    ``prefix``: what names with a profile in them begin with, as ``all-1g.10gb.me`` does. A name
    without a profile in it is compared by its spelling.
    """
    requested_profile = _profile(name, prefix)
    if requested_profile is None:
        return did_you_mean(name, known)
    profiles = ((_profile(candidate, prefix), candidate) for candidate in known)
    alike = [
        (profile.gigabytes, candidate)
        for profile, candidate in profiles
        if profile is not None
        and (profile.slices, profile.attributes)
        == (requested_profile.slices, requested_profile.attributes)
    ]
    # a profile with twice the memory of its slices is the exception: the least memory is usual
    return meant(min(alike)[1] if alike else None)


def _profile(name: str, prefix: str) -> DeviceName | None:
    """The profile in a name; names of configurations and resources have ``.`` in place of ``+``."""
    if not name.startswith(prefix):
        return None
    size, unit, attributes = name.removeprefix(prefix).partition("gb")
    signed = f"+{attributes[1:]}" if attributes.startswith(".") else attributes
    try:
        return device_name(f"{size}{unit}{signed}")
    except BadInput:
        return None
