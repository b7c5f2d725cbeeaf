# SPDX-License-Identifier: Apache-2.0
"""GPUs that a node's pods have by ResourceClaims, from the kubelet's own checkpoint of them.

The kubelet writes a claim down with the pods that use it before it asks any driver to prepare its
devices, and deletes it when all is undone; what each driver prepared comes in between.
Source: Kubernetes 1.32.2 and 1.37.1, pkg/kubelet/cm/dra/state and claiminfo.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from api.device_names import DRA_DRIVER, cdi_names
from base.errors import BadInput
from base.files import read_bytes

CLAIMS: Final = Path("var/lib/kubelet/dra_manager_state")
MOST_BYTES: Final = 16 << 20
"""Largest checkpoint that is read; a claim of sixteen GPUs takes 4 KiB."""
NOT_KNOWN: Final = ""
"""Name of a device of which the checkpoint has no name, or not yet."""


class _Device(msgspec.Struct):
    DeviceName: str = ""
    CDIDeviceIDs: list[str] | None = None


class _Driver(msgspec.Struct):
    Devices: list[_Device] | None = None


class _Claim(msgspec.Struct):
    ClaimName: str
    Namespace: str
    DriverState: dict[str, _Driver] | None
    PodUIDs: dict[str, Any] | None = None


class _Claims(msgspec.Struct):
    ClaimInfoStateList: list[_Claim] | None


class _File(msgspec.Struct):
    Data: str
    """Text of the claims, which is JSON too."""


def claimed_devices(root: Path) -> Iterator[tuple[str, str, str]]:
    """Devices of NVIDIA's DRA driver: name of the device, UID of a pod, and the claim's name.

    The claim's is ``namespace/name``; a device that no pod uses any more has an empty UID. ``root``
    is where the host's root is mounted. Raises BadInput where the checkpoint cannot be read.
    """
    file = root / CLAIMS
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from error
    content = read_bytes(file, most_bytes=MOST_BYTES)
    try:
        outer = msgspec.json.decode(content, type=_File)
        claims = msgspec.json.decode(outer.Data, type=_Claims).ClaimInfoStateList
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadInput(f"cannot read {file}: no checkpoint of a kubelet: {error}") from error
    for claim in claims or ():
        driver = (claim.DriverState or {}).get(DRA_DRIVER)
        if driver is None:
            continue
        for name in _names(driver):
            for uid in sorted(claim.PodUIDs or {"": None}):
                yield name, uid, f"{claim.Namespace}/{claim.ClaimName}"


def _names(driver: _Driver) -> frozenset[str]:
    """Names of the devices: the driver's own, else those for the container runtime."""
    names: set[str] = set()
    for device in driver.Devices or ():
        by_runtime = cdi_names(device.CDIDeviceIDs or ()) or {NOT_KNOWN}
        names |= {device.DeviceName} if device.DeviceName else by_runtime
    return frozenset(names or {NOT_KNOWN})
