# SPDX-License-Identifier: Apache-2.0
"""Names of the programs that keep a GPU from being reset, for people.

All that have the GPU open count here: those that the driver lists, and those with a device file,
in pods and outside, the persistence daemon too. Any of them lets nvmlDeviceSetMigMode answer
IN_USE, and the driver does not say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from actuator.fabric_manager import CUT_NAME
from base.errors import Transient
from base.words import first_names
from discovery.host.device_files import openers, proc_folder, whole_process_name
from discovery.host.process_pods import pod_of_process
from discovery.mig_state import MigGpu
from discovery.nvml.changing.gpu_use import programs_now
from kubelet.devices_checkpoint import pod_names

MOST_NAMED: Final = 5
_KNOWN: Final = {
    "nvidia-persistenced": "the persistence daemon",
    "nv-hostengine": "DCGM",
    "dcgm-exporter": "DCGM's exporter",
    "nvsm_core": "NVSM",
    "nvidia-device-plugin": "the device plugin",
    "gpu-feature-discovery": "GPU feature discovery",
}
"""Program to what people call it, where it is a known client of the driver.
Source: mig-parted, deployments/systemd/utils.sh, default-gpu-clients; NVIDIA/gpu-operator#118."""
NOBODY: Final = "no program is seen that has it open; run lsof /dev/nvidia* on the host"


def gpu_holders(gpu: MigGpu, root: Path, *, simulated: bool) -> str:
    """The programs in words: ``held by process 2180 nv-hostengine (DCGM)``. ``root``: the host's.

    Raises nothing: what cannot be read is not named.
    """
    pids: set[int] = set()
    with suppress(OSError):
        pids.update(_opening(gpu, root, simulated))
    with suppress(Transient):
        pids.update(_listed(gpu))
    texts = list(_texts(sorted(pids), root))
    if not texts:
        return NOBODY
    return f"held by {first_names(texts, MOST_NAMED)}"


def is_held(gpu: MigGpu, root: Path, *, simulated: bool) -> bool:
    """Whether any program but Fabric Manager, which a reset may need, has the GPU open.

    Raises OSError and Transient where that cannot be known.
    """
    pids, proc = _opening(gpu, root, simulated) | _listed(gpu), proc_folder(root)
    return any(not whole_process_name(pid, proc).startswith(CUT_NAME) for pid in pids)


def _opening(gpu: MigGpu, root: Path, simulated: bool) -> frozenset[int]:
    minor = -1 if gpu.minor is None else gpu.minor
    return openers(root, simulated=simulated).get(minor, frozenset())


def _listed(gpu: MigGpu) -> frozenset[int]:
    return frozenset(process.pid for process in programs_now(gpu.bus_id))


def _texts(pids: Iterable[int], root: Path) -> Iterator[str]:
    proc, names = proc_folder(root), pod_names(root)
    for pid in pids:
        name, uid = whole_process_name(pid, proc), pod_of_process(proc, pid)
        pod = f"pod {names.get(uid, uid)}" if uid else ""
        notes = ", ".join(filter(None, (_known(name), pod)))
        yield f"process {pid} {name}".rstrip() + (f" ({notes})" if notes else "")


def _known(name: str) -> str:
    """Name that people know a client by; a program's own name may be cut."""
    names = (known for program, known in _KNOWN.items() if name and program.startswith(name))
    return next(names, "")
