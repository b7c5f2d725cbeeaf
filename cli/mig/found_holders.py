# SPDX-License-Identifier: Apache-2.0
"""Who holds the GPUs of this node, for a plan: programs, and the pods of its kubelet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from agent.settings.agent_settings import AgentSettings
from cli.mig.program_names import program_name
from discovery.host.kubelet_devices import read_kubelet_devices
from discovery.mig_state import MigGpu
from discovery.reader.protocol import Start
from mig.holders import MigHolders, all_holders
from mig.pod_holders import pod_holders
from mig.process_holders import process_holders


def found_holders(gpus: Sequence[MigGpu], settings: AgentSettings, start: Start) -> MigHolders:
    """Programs that the driver lists, and pods that the kubelet has given a device.

    Raises BadInput where it cannot be read whom the kubelet has given one.
    """
    kubelet = read_kubelet_devices(Path(start.host_root), time.time())
    return all_holders(
        process_holders(gpus, program_name(settings)), pod_holders(gpus, kubelet.held)
    )
