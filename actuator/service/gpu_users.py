# SPDX-License-Identifier: Apache-2.0
"""Programs that have GPUs open, for clients that request changes: only this container sees them.

A monitor that holds a handle and runs nothing is in no list of the driver's, and a change of the
MIG mode fails with it. Nothing is changed or opened for the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from actuator.fabric_manager import why_no_single_reset
from api.actuator.actuator_messages import MOST_USERS, GpuUser, UseAnswer
from api.mig_mode_change import MigReset
from discovery.host.device_files import (
    HARMLESS,
    ancestors,
    openers,
    proc_folder,
    process_name,
)
from discovery.host.process_pods import (
    cgroups_of,
    hidden_own_pod,
    pod_in_cgroups,
    pod_of_process,
)


def gpu_users(
    root: Path,
    *,
    simulated: bool,
    asker: int,
    reset: MigReset = MigReset.OFF,
    pod_uid: str | None = None,
) -> UseAnswer:
    """Programs that have device files of GPUs open, each with each GPU, in order.

    ``root``: the host's; ``asker``: pid of the client, 0 if it is in another PID namespace. The
    client, its child processes, those of this process's pod and harmless programs are left out.
    ``reset``, ``pod_uid``: the actuator's settings.
    """
    proc = proc_folder(root)
    hidden = hidden_own_pod(proc, pod_uid)
    own_pod = pod_in_cgroups(cgroups_of(proc, "self"), hidden)

    def programs() -> Iterator[GpuUser]:
        for minor, pids in openers(root, simulated=simulated).items():
            for pid in pids:
                name, pod = process_name(pid, proc), pod_of_process(proc, pid, hidden) or ""
                is_own = (pod and pod == own_pod) or asker in (pid, *ancestors(pid, proc))
                if name not in HARMLESS and not is_own:
                    yield GpuUser(minor=minor, pid=pid, name=name, pod=pod)

    users = sorted(programs(), key=lambda user: (user.minor, user.pid))
    return UseAnswer(
        users=tuple(users[:MOST_USERS]),
        more=max(0, len(users) - MOST_USERS),
        together=why_no_single_reset(root, simulated=simulated),
        may_reset=reset is MigReset.ALLOW,
    )
