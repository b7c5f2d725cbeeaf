# SPDX-License-Identifier: Apache-2.0
"""Driver, device nodes and GPUs of this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from diagnosis.facts.local_facts import LocalFacts
from diagnosis.facts.machine_facts import DriverFailure, DriverFault
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    finding,
    require_fact,
)
from discovery.model import GpuSnapshot, GpuState, NodeSnapshot, Reason
from discovery.shared_identities import shared_identities
from health.gpu_health import gpu_verdict
from health.gpu_rules import GPU_RULES
from health.health_verdict import Health, HealthCause
from health.node_health import COUNT_RULES, count_faults, expected_gpus

DRIVER_ABSENT: Final = FindingKind(
    name="driver-absent",
    severity=FindingSeverity.ERROR,
    cause="No NVIDIA driver answers: its library or its kernel module is missing here.",
    fix="On a host: install the driver, `modprobe nvidia`. In a pod: set the RuntimeClass nvidia,"
    " which injects the library into the container.",
    page="runbooks/GpuscapeDriverSilent.md",
)
HOST_ROOT_INCOMPLETE: Final = FindingKind(
    name="host-root-incomplete",
    severity=FindingSeverity.ERROR,
    cause="The folder of host-root lacks files that every host has: it is not the host's root, or"
    " not all of it is mounted.",
    fix="Set host-root to the folder below which the host's /proc, /sys and /dev are mounted; in"
    " the agent's pod leave it at /.",
    page="configuration.md",
)
DRIVER_MISMATCH: Final = FindingKind(
    name="driver-mismatch",
    severity=FindingSeverity.ERROR,
    cause="The driver's library and its kernel module have different versions, for example after"
    " an upgrade without a reboot.",
    fix="Reload the kernel module, or reboot the node; restart the pod, so that it gets the new"
    " library.",
    page="runbooks/GpuscapeDriverSilent.md",
)
DRIVER_STUCK: Final = FindingKind(
    name="driver-stuck",
    severity=FindingSeverity.ERROR,
    cause="A call to the driver does not return: a GPU or the driver hangs.",
    fix="Search the kernel log for NVRM lines, drain the node and reboot it; no signal ends such a"
    " call.",
    page="runbooks/GpuscapeReaderStuck.md",
)
READER_ENDS: Final = FindingKind(
    name="reader-ends",
    severity=FindingSeverity.ERROR,
    cause="The process that calls the driver ends each time, or returns no valid answer.",
    fix="Search the kernel log for the reason; try `gpuscape --debug discover` and attach"
    " `gpuscape record` to a bug report.",
    page="runbooks/GpuscapeReaderRestarts.md",
)
NO_GPU: Final = FindingKind(
    name="no-gpu",
    severity=FindingSeverity.WARNING,
    cause="The driver answers, but lists no GPU.",
    fix="Search for the GPU with `lspci -d 10de:`; in a pod set NVIDIA_VISIBLE_DEVICES=all.",
    page="runbooks/GpuMissing.md",
)
DEVICE_NODE_MISSING: Final = FindingKind(
    name="device-node-missing",
    severity=FindingSeverity.ERROR,
    cause="The driver is loaded, but one of its device nodes is missing in this container or on"
    " this host.",
    fix="On a host: `nvidia-modprobe -u -c=0`. In a pod: restart it; a reload of systemd or of the"
    " driver can remove device nodes.",
    page="install.md",
)
DEVICE_NODE_FORBIDDEN: Final = FindingKind(
    name="device-node-forbidden",
    severity=FindingSeverity.ERROR,
    cause="This user may not open a device node of the driver.",
    fix="Run as a user of the node's group, or give the driver other file rights"
    " (NVreg_DeviceFileMode).",
    page="runbooks/GpuscapeReadingsForbidden.md",
)
READINGS_FORBIDDEN: Final = FindingKind(
    name="readings-forbidden",
    severity=FindingSeverity.WARNING,
    cause="The driver refuses readings because a right or a device node is missing.",
    fix="Give the agent the right that the page shows for them, or leave these readings out.",
    page="runbooks/GpuscapeReadingsForbidden.md",
)
IDENTITY_SHARED: Final = FindingKind(
    name="identity-shared",
    severity=FindingSeverity.ERROR,
    cause="Two devices report the same UUID or minor number, so it identifies neither.",
    fix="In a virtual machine: check that each GPU is passed through once. Else reset the GPUs"
    " when nothing uses them; report it with the file that `gpuscape record` writes.",
    page="runbooks/GpuscapeReadingsSenseless.md",
)
MODE_PENDING: Final = FindingKind(
    name="mode-pending",
    severity=FindingSeverity.WARNING,
    cause="A mode of the GPU was changed; the change takes effect after a reset.",
    fix="Reset the GPU when nothing uses it: `nvidia-smi --gpu-reset -i GPU`, or reboot the node.",
    page="runbooks/GpuModeChangePending.md",
)
MIG_EMPTY: Final = FindingKind(
    name="mig-empty",
    severity=FindingSeverity.NOTE,
    cause="MIG is on and the GPU has no MIG device, so no program can use it.",
    fix="Lay it out: `gpuscape mig plan` shows how, or switch MIG off.",
    page="mig.md",
)

_SEVERITIES: Final = {
    Health.UNHEALTHY: FindingSeverity.ERROR,
    Health.DEGRADED: FindingSeverity.WARNING,
    Health.UNKNOWN: FindingSeverity.WARNING,
}


def _kinds(causes: Iterable[HealthCause]) -> dict[str, FindingKind]:
    """The finding for each cause, by the reason."""
    return {
        cause.reason: FindingKind(
            name=cause.reason,
            severity=_SEVERITIES[cause.health],
            cause=cause.meaning,
            fix=cause.fix,
            page=cause.page,
        )
        for cause in causes
    }


HEALTH_KINDS: Final = _kinds(GPU_RULES)
"""Finding for each reason of the label ``gpuscape.io/gpu.health-reason``, without XIDs."""

COUNT_KINDS: Final = _kinds(COUNT_RULES)
"""Finding for each reason that the health of a node has from counts of its GPUs."""

KINDS: Final = (
    *(HOST_ROOT_INCOMPLETE, DRIVER_ABSENT, DRIVER_MISMATCH, DRIVER_STUCK, READER_ENDS, NO_GPU),
    *(DEVICE_NODE_MISSING, DEVICE_NODE_FORBIDDEN, READINGS_FORBIDDEN, IDENTITY_SHARED),
    *(MODE_PENDING, MIG_EMPTY),
    *HEALTH_KINDS.values(),
    *COUNT_KINDS.values(),
)
_DRIVER_KINDS: Final = {
    DriverFault.ABSENT: DRIVER_ABSENT,
    DriverFault.MISMATCH: DRIVER_MISMATCH,
    DriverFault.STUCK: DRIVER_STUCK,
    DriverFault.GONE: READER_ENDS,
}
_MOST_NAMED: Final = 6
"""Readings that a sentence names."""


def check_driver(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the driver answers."""
    if isinstance(facts.machine, DriverFailure):
        yield finding(_DRIVER_KINDS[facts.machine.fault], "driver", facts.machine.why)
    else:
        require_fact(facts.machine)


def check_host_root(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether what should be below the host root is there."""
    tree = require_fact(facts.host_tree)
    if tree.missing:
        share = f"{len(tree.missing)} of {len(tree.expected)}"
        sentence = f"{share} are not below {tree.root}: {', '.join(tree.missing)}"
        yield finding(HOST_ROOT_INCOMPLETE, "host-root", sentence)


def check_device_nodes(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the driver's device nodes are there and can be opened."""
    for file in require_fact(facts.device_files):
        if not file.exists:
            yield finding(DEVICE_NODE_MISSING, file.path, f"{file.path} is not there")
        elif not file.allowed:
            yield finding(DEVICE_NODE_FORBIDDEN, file.path, f"{file.path} may not be opened here")


def check_gpus(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether each GPU answers and is healthy."""
    snapshot = require_fact(facts.machine)
    if not snapshot.gpus and not snapshot.counts.why_unsure:
        yield finding(NO_GPU, "driver", f"driver {snapshot.driver.version or '?'} lists no GPU")
    for gpu in snapshot.gpus:
        reason = gpu_verdict(gpu, snapshot).reason
        kind = HEALTH_KINDS.get(reason)
        if kind is not None:
            yield finding(kind, gpu_name_in_findings(gpu), _why(gpu) or kind.cause)


def check_counts(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether sysfs, NVML and what is known of the node agree on the number of GPUs."""
    snapshot = require_fact(facts.machine)
    for rule in count_faults(snapshot):
        yield finding(COUNT_KINDS[rule.reason], "GPU counts", gpu_counts_sentence(snapshot))


def gpu_counts_sentence(snapshot: NodeSnapshot) -> str:
    """The counts of the three sources, as a sentence."""
    counts = snapshot.counts
    sysfs = "no PCI device" if counts.sysfs is None else f"{counts.sysfs} GPUs"
    nvml = f"fails: {counts.why_uncounted}" if counts.nvml is None else f"counts {counts.nvml}"
    return f"sysfs shows {sysfs}, NVML {nvml}, the node has {expected_gpus(snapshot)}"


def check_readings(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether all of what a GPU has can be read."""
    for gpu in require_fact(facts.machine).answering:
        missing = [gap for gap in gpu.gaps if gap.reason is Reason.FORBIDDEN]
        if missing:
            names = ", ".join(gap.what for gap in missing[:_MOST_NAMED])
            more = " and more" if len(missing) > _MOST_NAMED else ""
            sentence = f"the driver refuses {names}{more}"
            yield finding(READINGS_FORBIDDEN, gpu_name_in_findings(gpu), sentence)


def check_identities(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether each device can be known by what it says it is."""
    gpus = require_fact(facts.machine).gpus
    titles = {gpu.bus_id: gpu_name_in_findings(gpu) for gpu in gpus}
    for bus_id, gap in shared_identities(gpus):
        yield finding(IDENTITY_SHARED, titles[bus_id], gap.detail)


def check_modes(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether modes hold as they are set, and MIG is of use."""
    for gpu in require_fact(facts.machine).answering:
        mig = None if gpu.nvidia is None else gpu.nvidia.mig
        for name, mode in (("MIG", mig), ("ECC", gpu.ecc)):
            if mode is not None and mode.current != mode.pending:
                now, then = ("on" if is_on else "off" for is_on in (mode.current, mode.pending))
                sentence = f"{name} is {now}, and {then} after a reset"
                yield finding(MODE_PENDING, gpu_name_in_findings(gpu), sentence)
        if gpu.mig_enabled and not gpu.mig_devices and not gpu.misses("mig_devices"):
            yield finding(MIG_EMPTY, gpu_name_in_findings(gpu), MIG_EMPTY.cause)


CHECKS: Final = (
    check_host_root,
    check_driver,
    check_device_nodes,
    check_gpus,
    check_counts,
    check_readings,
    check_identities,
    check_modes,
)


def gpu_name_in_findings(gpu: GpuSnapshot) -> str:
    """The name of a GPU in messages."""
    return f"GPU {gpu.bus_id}" if gpu.index is None else f"GPU {gpu.index} ({gpu.bus_id})"


def _why(gpu: GpuSnapshot) -> str:
    gap = None if gpu.state is GpuState.PRESENT else gpu.gap("state")
    return "" if gap is None else gap.detail
