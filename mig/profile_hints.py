# SPDX-License-Identifier: Apache-2.0
"""Proposes a profile in place of a MIG profile that these GPUs do not have. Pure.

Layouts are copied from other GPUs. There the same name may stand for another size, so what is
meant is as many slices with this GPU's own memory, and never the name that looks most alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from base.errors import BadInput
from base.words import did_you_mean, meant
from mig.profile_names import DeviceName, device_name


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
