# SPDX-License-Identifier: Apache-2.0
"""Target of a self-test: an idle GPU, on a node that takes no new pods."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from base.errors import BadInput
from cli.failures import REFUSED, CommandFailure
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.mig.mig_text import pid_cell, unread_note
from cli.terminal import Styled
from discovery.host.driver_load import boot_id
from discovery.mig_state import MigGpu, MigReading, UnreadMigGpu
from discovery.reader.protocol import Start
from kube.api import NODES
from kube.api_errors import NotFound
from kube.objects.node import Node


def tested_gpu(readings: Sequence[MigReading], index: int | None) -> MigGpu:
    """Choose the GPU to test: that of ``index``, or an idle one, preferably without instances.

    Raises BadInput for an index that no GPU has, and CommandFailure where none may be tested.
    """
    if index is not None:
        readings = [gpu for gpu in readings if gpu.index == index]
        if not readings:
            raise BadInput(f"there is no GPU {index}: see gpuscape mig status")
    reasons_against = {gpu.bus_id: _why_not(gpu) for gpu in readings}
    ready = [gpu for gpu in readings if isinstance(gpu, MigGpu) and not reasons_against[gpu.bus_id]]
    if not ready:
        reasons = "; ".join(filter(None, reasons_against.values())) or "there is no GPU"
        raise CommandFailure(f"no GPU can be tested: {reasons}", REFUSED)
    return min(ready, key=lambda gpu: (bool(gpu.instances), not _is_on(gpu), gpu.bus_id))


def _why_not(gpu: MigReading) -> str | None:
    """Why a GPU cannot be tested; None where it can, as far as the driver's lists say."""
    if isinstance(gpu, UnreadMigGpu):
        return unread_note(gpu)
    if gpu.mode is None:
        return f"GPU {gpu.index}: {gpu.model} has no MIG"
    if not gpu.resetless and gpu.mode.current != gpu.mode.pending:
        return f"GPU {gpu.index}: a change of its MIG mode waits for a reset"
    if not gpu.resetless and not gpu.mode.current:
        smi = f"nvidia-smi -i {gpu.bus_id} -mig 1 && nvidia-smi --gpu-reset -i {gpu.bus_id}"
        return f"GPU {gpu.index}: MIG is off, and goes on by a reset, which is yours to do: {smi}"
    if gpu.processes:
        process_ids = pid_cell(sorted({process.pid for process in gpu.processes}))
        names = process_ids.text if isinstance(process_ids, Styled) else process_ids
        return f"GPU {gpu.index}: in use by process {names}"
    return None


def _is_on(gpu: MigGpu) -> bool:
    return gpu.mode is not None and gpu.mode.current


def require_cordoned(name: str, kubeconfig: Path | None, start: Start) -> None:
    """Read the Node of this machine.

    Raises CommandFailure where the Node is not cordoned, or is another machine; and kube's
    ApiError.
    """
    node = _node(name, kubeconfig)
    if not node.spec.unschedulable:
        why = f"node {name} is not cordoned: run kubectl cordon {name}, and drain it"
        raise CommandFailure(why, REFUSED)
    node_boot_id = node.status.node_info.boot_id
    own_boot_id = "" if start.simulation is not None else boot_id(Path(start.host_root))
    if node_boot_id and own_boot_id and node_boot_id != own_boot_id:
        own = f"and here it is {own_boot_id}"
        why = f"node {name} is another machine: its boot id is {node_boot_id}, {own}"
        raise CommandFailure(why, REFUSED)


def _node(name: str, kubeconfig: Path | None) -> Node:
    with contextlib.closing(kubeconfig_client("gpuscape-mig", kubeconfig)) as api:
        try:
            return Node.from_object(api.get(NODES, name))
        except NotFound as error:
            raise BadInput(f"the cluster has no node {name}: see kubectl get nodes") from error
