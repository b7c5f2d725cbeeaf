# SPDX-License-Identifier: Apache-2.0
"""Device users of this node's GPUs, for a plan: its programs, and the pods of its kubelet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from agent.settings.agent_settings import AgentSettings
from base.words import quoted
from cli import terminal
from discovery.host.device_files import process_name
from discovery.mig_state import MigGpu
from discovery.reader.protocol import Start
from kubelet.devices_checkpoint import read_kubelet_devices
from mig.users.device_users import DeviceUsers, all_users
from mig.users.pod_users import pod_users, unplaced_devices
from mig.users.process_users import process_users


def local_users(gpus: Sequence[MigGpu], settings: AgentSettings, start: Start) -> DeviceUsers:
    """Read the programs that the driver lists, and the pods that the kubelet has given a device.

    Pods whose device is not known are named on standard error. Raises BadInput where the kubelet's
    devices cannot be read.
    """
    kubelet = read_kubelet_devices(Path(start.host_root), time.time())
    for name, pods in unplaced_devices(gpus, kubelet).items():
        terminal.note(
            f"Look at this: pod {', '.join(sorted(pods))} has the GPU {quoted(name)}, and it is not"
            " known which one that is: it counts as in use, whichever it may be",
            err=True,
        )
    # this machine's process of a number is not the simulated one
    name_of = process_name if settings.simulate is None else lambda _pid: ""
    return all_users(process_users(gpus, name_of), pod_users(gpus, kubelet))
