# SPDX-License-Identifier: Apache-2.0
"""The GPU instance profiles of one GPU, and what a MIG device of a profile is called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from discovery.mig_profile import ATTRIBUTES, compute_part, mig_profile_name
from discovery.model import Gap, Reason
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import Garbage

PROFILES = 32
"""GPU instance profile numbers to try at most; NVML has 18 of them today."""

CALL = "nvmlDeviceGetGpuInstanceProfileInfo"

_DRIVERS_NAME = re.compile(r"(?:MIG )?([0-9]+g\.[0-9]+gb[-+a-z0-9.]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceProfile:
    """The name of a GPU instance profile: its suffix, and all of it as the driver gives it."""

    suffix: str
    """Such as ``+me``; often empty."""
    name: str | None
    """``1g.5gb+me``; None from drivers that do not name profiles."""

    def called(
        self, *, gpu_slices: int, compute_slices: int, memory_bytes: int, total_bytes: int | None
    ) -> str | None:
        """Name of a MIG device: by the GPU's memory, else as the driver has it, else None.

        Never by the device's memory alone: it is less than the name says, by an
        amount that the GPU decides. A 1g.10gb of an A100 80GB has 9.5 GiB, a 1g.12gb
        of an H100 NVL has 11.
        """
        if total_bytes is not None:
            return mig_profile_name(
                gpu_slices=gpu_slices,
                compute_slices=compute_slices,
                memory_bytes=memory_bytes,
                total_bytes=total_bytes,
                attribute=self.suffix,
            )
        return None if self.name is None else compute_part(gpu_slices, compute_slices) + self.name


def instance_profiles(handle: Handle) -> Mapping[int, InstanceProfile]:
    """The GPU's profiles by their ids; without those that cannot be had."""
    return dict(_by_id(handle))


def _by_id(handle: Handle) -> Iterator[tuple[int, InstanceProfile]]:
    for number in range(PROFILES):
        info, _ = profile_info(handle, number)
        if info is not None:
            name = Calls().part("profile", CALL, drivers_name, info)
            yield int(info.id), InstanceProfile(suffix=ATTRIBUTES.get(number, ""), name=name)


def profile_info(handle: Handle, number: int) -> tuple[Any, Gap | None]:
    """What the driver says of the profile with this number; None with a gap.

    The gap's reason is ABSENT past the last number, and UNSUPPORTED for a profile that this GPU
    has not, or tells only with MIG on. Raises as :meth:`Calls.ask` does.
    """
    return newest(CALL, handle, number)


def newest(call: str, *args: object) -> tuple[Any, Gap | None]:
    """The answer of a numbered question in the second version of its struct, else in the first.

    Source: nvml.h: the second version is a function of its own, which older drivers have not.
    """
    tried = Calls(invalid_argument=Reason.ABSENT)
    info = tried.ask("profile", call, *args)
    if info is None and tried.gaps[0].reason is Reason.UNSUPPORTED:
        info = tried.ask("profile", call, *args, 1)
    return info, None if info is not None else tried.gaps[-1]


def drivers_name(info: Any) -> str | None:
    """The name without ``MIG ``; None in the first version of the struct. Raises Garbage."""
    if not hasattr(info, "name"):
        return None
    raw = info.name
    matched = _DRIVERS_NAME.fullmatch(raw.decode("ascii") if isinstance(raw, bytes) else raw)
    if matched is None:
        raise Garbage(f"not a name of a profile: {raw!r:.80}")
    return matched[1]
