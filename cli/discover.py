# SPDX-License-Identifier: Apache-2.0
"""``gpuscape discover``: the GPUs of this machine as a table or as the snapshot itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from agent.single_reading import take_snapshot
from cli import options, terminal
from cli.missing_gpus import end_without_gpus
from cli.options import Load
from cli.terminal import NONE, UNKNOWN, Cell, Styled, TextTable
from discovery.model import GpuSnapshot, GpuState, Mode, NodeSnapshot, NvidiaFacts, Reason
from discovery.snapshot_document import snapshot_document
from discovery.unread import UNREAD_NVIDIA_FACTS

GIB = 1 << 30


@click.command(
    epilog="""\b
Examples:
  gpuscape discover
  gpuscape discover -o wide --simulate mixed
  gpuscape discover -o json | jq -r '.gpus[].uuid'

\b
In tables, - means that a GPU does not have it, and ? that it could not be read; -o wide lists the
reasons. In json and yaml, a missing value is null, with an entry in `gaps`. A GPU that hangs or
is lost is listed with its state, and does not change the exit code. The exit code is 0 for a
machine with a driver and no GPU, 3 for a machine without a driver or whose GPUs cannot be listed,
and 5 for an integrated GPU, as in a Jetson, which is not supported."""
)
@options.output("table", "wide", "json", "yaml")
@options.settings(*options.READING)
def command(load: Load, output: str) -> None:
    """List this machine's GPUs with memory, MIG mode, NVLinks and state."""
    snapshot = take_snapshot(load())
    if output in ("json", "yaml"):
        terminal.print_data(snapshot_document(snapshot), output)
        end_without_gpus(snapshot)
        return
    terminal.note(machine_summary(snapshot))
    for table in _tables(snapshot, wide=output == "wide"):
        terminal.note("")
        terminal.show_table(table)
    missing = gap_table(snapshot).rows
    if missing and output == "table":
        terminal.note("", f"Missing readings: {len(missing)}; -o wide lists them.")
    end_without_gpus(snapshot)


def _tables(snapshot: NodeSnapshot, wide: bool) -> Iterator[TextTable]:
    """The tables to print; a table without a row is left out."""
    makers = [gpu_facts_table]
    if wide:
        makers += [identity_table, mig_table, nic_table, gap_table]
    return (table for table in (make(snapshot) for make in makers) if table.rows)


def machine_summary(snapshot: NodeSnapshot) -> str:
    """Machine, driver and number of GPUs in a line."""
    host, driver, counts = snapshot.host, snapshot.driver, snapshot.counts
    parts = [f"{host.name}: {host.machine_type}" if host.machine_type else host.name]
    parts.append(f"driver {driver.version or '?'}")
    if driver.cuda_version is not None:
        parts.append("CUDA {}.{}".format(*driver.cuda_version))
    unread = f"{counts.integrated} integrated GPU" if counts.integrated else "GPUs not listed"
    nothing = unread if counts.why_unsure else "no NVIDIA GPU"
    models = Counter(gpu.model or "unknown model" for gpu in snapshot.gpus)
    parts += [f"{count} x {model}" for model, count in models.items()] or [nothing]
    if host.nics:
        parts.append(f"{len(host.nics)} x RDMA NIC")
    return ", ".join(parts)


def gpu_facts_table(snapshot: NodeSnapshot) -> TextTable:
    """The main facts of each GPU, one row per GPU in PCI bus order."""
    return TextTable(
        header=("GPU", "MODEL", "BUS ID", "MEMORY", "NUMA", "NVLINKS", "MIG", "ECC", "STATE"),
        rows=tuple(
            (
                gpu_name(gpu),
                gpu.model or UNKNOWN,
                gpu.bus_id,
                _memory(gpu),
                _known(gpu, "numa_node", gpu.numa_node),
                _links(gpu),
                _mig(gpu),
                _mode(gpu, "ecc", gpu.ecc),
                _state(gpu),
            )
            for gpu in snapshot.gpus
        ),
        right=frozenset({3}),
    )


def identity_table(snapshot: NodeSnapshot) -> TextTable:
    """Identities and versions, one row per GPU."""
    gpus = ((gpu, gpu.nvidia or UNREAD_NVIDIA_FACTS) for gpu in snapshot.gpus)
    return TextTable(
        header=("GPU", "UUID", "SERIAL", "MINOR", "ARCHITECTURE", "CC", "VBIOS", "CLIQUE", "CPUS"),
        rows=tuple(
            (
                gpu_name(gpu),
                _known(gpu, "uuid", gpu.uuid),
                _known(gpu, "serial", gpu.serial),
                _known(gpu, "minor", nvidia.minor),
                _known(gpu, "architecture", gpu.architecture),
                _capability(gpu, nvidia),
                _known(gpu, "vbios_version", gpu.vbios_version),
                _clique(gpu, nvidia),
                _known(gpu, "cpu_affinity", gpu.cpu_affinity),
            )
            for gpu, nvidia in gpus
        ),
    )


def mig_table(snapshot: NodeSnapshot) -> TextTable:
    """Every MIG device."""
    return TextTable(
        header=("GPU", "MIG DEVICE", "GI", "CI", "PLACEMENT", "MEMORY", "UUID"),
        rows=tuple(
            (
                gpu_name(gpu),
                mig.profile,
                str(mig.gpu_instance_id),
                str(mig.compute_instance_id),
                NONE if mig.placement is None else "{}:{}".format(*mig.placement),
                f"{mig.memory_bytes / GIB:.1f} GiB",
                mig.uuid,
            )
            for gpu in snapshot.gpus
            for mig in gpu.mig_devices
        ),
        right=frozenset({5}),
    )


def nic_table(snapshot: NodeSnapshot) -> TextTable:
    """Every RDMA NIC."""
    return TextTable(
        header=("NIC", "BUS ID", "NUMA", "CPUS"),
        rows=tuple(
            (
                nic.name,
                nic.bus_id,
                NONE if nic.numa_node is None else str(nic.numa_node),
                nic.cpu_affinity or NONE,
            )
            for nic in snapshot.host.nics
        ),
    )


def gap_table(snapshot: NodeSnapshot) -> TextTable:
    """Every reading that is missing although the device should have it."""
    owners = [(snapshot.host.name, snapshot.host.gaps), ("driver", snapshot.driver.gaps)]
    for gpu in snapshot.gpus:
        name = gpu.bus_id if gpu.index is None else gpu.index
        owners.append((f"GPU {name}", gpu.gaps))
    return TextTable(
        header=("MISSING ON", "READING", "WHY", "ASKED", "ANSWER"),
        rows=tuple(
            (owner, gap.what, gap.reason.value, gap.source, gap.detail)
            for owner, gaps in owners
            for gap in gaps
            if gap.reason is not Reason.UNSUPPORTED
        ),
    )


def gpu_name(gpu: GpuSnapshot) -> Cell:
    """The index people know a GPU by; ``?`` where it could not be read."""
    return UNKNOWN if gpu.index is None else str(gpu.index)


def _known(gpu: GpuSnapshot, reading: str, value: object) -> Cell:
    """The value, or the mark for why there is none."""
    if value is not None:
        return str(value)
    gap = gpu.gap(reading)
    absent = gpu.state is GpuState.PRESENT and (gap is None or gap.reason is Reason.UNSUPPORTED)
    return NONE if absent else UNKNOWN


def _memory(gpu: GpuSnapshot) -> Cell:
    gib = None if gpu.memory_bytes is None else f"{gpu.memory_bytes / GIB:.1f} GiB"
    return _known(gpu, "memory_bytes", gib)


def _links(gpu: GpuSnapshot) -> Cell:
    """Number of active links, and of all links where some are down."""
    links = () if gpu.nvidia is None else gpu.nvidia.links
    if not links:
        return _known(gpu, "links", None)
    active = sum(link.active is True for link in links)
    if active == len(links):
        return str(active)
    return Styled(f"{active} of {len(links)}", "yellow")


def _mig(gpu: GpuSnapshot) -> Cell:
    """MIG mode of a GPU; its number of MIG devices by profile where the mode is on."""
    mig = None if gpu.nvidia is None else gpu.nvidia.mig
    if mig is None or not mig.current or not mig.pending:
        return _mode(gpu, "mig", mig)
    profiles = Counter(mig.profile for mig in gpu.mig_devices)
    return ", ".join(f"{count} x {name}" for name, count in profiles.items()) or "on, empty"


def _mode(gpu: GpuSnapshot, reading: str, mode: Mode | None) -> Cell:
    if mode is None:
        return _known(gpu, reading, None)
    now, after = ("on" if value else "off" for value in (mode.current, mode.pending))
    return now if now == after else Styled(f"{now}, {after} after reset", "yellow")


def _capability(gpu: GpuSnapshot, nvidia: NvidiaFacts) -> Cell:
    pair = nvidia.compute_capability
    return _known(gpu, "compute_capability", None if pair is None else "{}.{}".format(*pair))


def _clique(gpu: GpuSnapshot, nvidia: NvidiaFacts) -> Cell:
    if nvidia.fabric is not None and nvidia.fabric.attached:
        return str(nvidia.fabric.clique_id)
    return _known(gpu, "fabric", None)


def _state(gpu: GpuSnapshot) -> Cell:
    if gpu.state is GpuState.PRESENT:
        return Styled("ok", "green")
    return Styled(gpu.state.value, "bold red")
