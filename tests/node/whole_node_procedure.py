# SPDX-License-Identifier: Apache-2.0
"""What people do around NVIDIA's MIG manager, on a real node: it is emptied, changed, and refilled.

Cordon, drain all pods with GPUs, nvidia-mig-parted's own ``apply``, restart the device plugin, wait
until the node offers what was asked for, uncordon. Kinder than the manager in one thing: nothing is
paused before, so it is not waited for either.
Sources: mig-parted v0.10.0, cmd/nvidia-mig-manager; NVIDIA/gpu-operator#262.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from simulator.clibrary.served_machine import LIBRARY_FOLDER
from tests.agent.agent_process import until
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.node.machine import LOGS
from tests.node.mig_stage import LONG, MigStage
from tests.node.node_mig import HOST

CONFIG: Final = "mig-parted.yaml"
"""Below the node's /var/log, which can be written to from outside."""
# it sees the GPUs' /sys and /proc as on a host with the driver
_APPLY: Final = f"""\
mount --rbind {HOST}/sys /sys
mount --rbind {HOST}/proc /proc
exec "$1" apply -f /var/log/{CONFIG} -c wanted
"""


def change_whole_node(
    stage: MigStage,
    node: str,
    specs: Sequence[Mapping[str, Any]],
    offers: Mapping[str, int],
    pods: str,
) -> None:
    """Carry it out. ``specs``: the configuration as mig-parted has it; ``pods``: the label of those
    with GPUs."""
    stage.plane.kubectl("cordon", node)
    options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={LONG:.0f}s")
    stage.plane.kubectl("drain", node, f"--pod-selector={pods}", *options)
    apply_everything(stage, node, specs, offers)
    stage.plane.kubectl("uncordon", node)


def apply_everything(
    stage: MigStage, node: str, specs: Sequence[Mapping[str, Any]], offers: Mapping[str, int]
) -> None:
    """The change alone; the node offers what was made when this returns."""
    real = stage.nodes[node]
    config = {"version": "v1", "mig-configs": {"wanted": list(specs)}}
    (real.folder / LOGS / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    library = f"LD_LIBRARY_PATH={HOST / LIBRARY_FOLDER}"
    program = binaries(NVIDIA) / "nvidia-mig-parted"
    real.run("env", library, "unshare", "--mount", "sh", "-ec", _APPLY, "sh", program)
    stage.restart_plugin(node)
    until(lambda: stage.offers(node) == offers, LONG)
