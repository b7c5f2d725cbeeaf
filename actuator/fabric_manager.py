# SPDX-License-Identifier: Apache-2.0
"""Whether one GPU of a machine with NVSwitches may be reset without the others.

On Ampere Fabric Manager makes that possible: while it runs, each GPU is reset by itself; else all
GPUs that NVLinks join have to be reset in one go. It also trains a GPU's NVLinks anew when MIG is
turned off. Sources: nvidia-smi(1), ``--gpu-reset``, table "NVSwitch systems"; Fabric Manager User
Guide, "Interoperability With Multi-Instance GPUs".
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from discovery.host.device_files import proc_folder, process_name
from discovery.host.pci import nv_switches

FABRIC_MANAGER: Final = "nv-fabricmanager"
CUT_NAME: Final = FABRIC_MANAGER[:15]
"""As much of its name as the kernel keeps. Source: proc(5), comm."""
_WHY_NOT: Final = (
    "it is on NVSwitches, and Fabric Manager does not run: without it no GPU is reset alone, and"
    " NVLinks do not come back; start nvidia-fabricmanager.service"
)


def why_no_single_reset(root: Path, *, simulated: bool) -> str:
    """Why no GPU here can be reset alone; empty where each one can. ``root``: the host's.

    A simulated machine has no such program.
    """
    if simulated or not nv_switches(root):
        return ""
    proc = proc_folder(root)
    pids = (int(folder.name) for folder in proc.iterdir() if folder.name.isdigit())
    return "" if any(process_name(pid, proc) == CUT_NAME for pid in pids) else _WHY_NOT
