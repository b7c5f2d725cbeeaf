# SPDX-License-Identifier: Apache-2.0
"""NVLinks of each GPU: expected and active ones, traffic and errors. Pure."""

from __future__ import annotations

from collections.abc import Callable

from discovery.model import NvLink
from discovery.sample import LinkCounters, LinkError, ReadingGroup
from exporters.gpuscape.gpuscape_family import (
    GPU,
    GpuscapeFamily,
    Series,
    of_gpu_parts,
    of_gpus,
    of_nvidia_gpus,
    part_readings,
)
from exporters.gpuscape.node_view import GpuView, NodeView
from health.expected_links import all_links_read, expected_links, links_up

_LINK = (*GPU, "link")

_ROUTINE = (LinkError.EFFECTIVE, LinkError.SYMBOL)
"""Bit errors on the wire: NVLink 5 has some at any time, and corrects them."""


def _ends(node: NodeView) -> Series:
    for gpu, nvidia in node.nvidia_gpus:
        for link in nvidia.links:
            if link.active and link.peer is not None:
                yield (*gpu.labels, str(link.link), link.peer, link.peer_bus_id or ""), 1


def _errors(node: NodeView) -> Series:
    for gpu in node.gpus:
        for link in gpu.sample.links:
            for error, count in link.errors:
                yield (*gpu.labels, str(link.link), error.replace("-", "_")), count


def _transfer_errors(gpu: GpuView) -> int | None:
    """Transfer errors of either generation of counters; None where the GPU has neither."""
    old, new = gpu.sample.nvlink_errors, gpu.sample.links
    counts = [] if old is None else [old.crc_data, old.replay, old.recovery]
    counts += [count for link in new for error, count in link.errors if error not in _ROUTINE]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _expected(node: NodeView) -> Series:
    for gpu in node.gpus:
        yield gpu.labels, expected_links(gpu.gpu, node.snapshot)


def _links(read: Callable[[NvLink], float | None]) -> Callable[[GpuView], dict[str, float | None]]:
    """A fact of each NVLink of the GPU, by the link's number."""

    def facts(gpu: GpuView) -> dict[str, float | None]:
        links = () if gpu.gpu.nvidia is None else gpu.gpu.nvidia.links
        return {str(link.link): read(link) for link in links}

    return facts


def _counters(
    read: Callable[[LinkCounters], float | None],
) -> Callable[[GpuView], dict[str, float | None]]:
    """A counter of each NVLink of the GPU, by the link's number."""
    return lambda gpu: {str(link.link): read(link) for link in gpu.sample.links}


FAMILIES: tuple[GpuscapeFamily, ...] = (
    of_nvidia_gpus(
        "gpuscape_gpu_nvlinks",
        "NVLink ports of the GPU.",
        lambda nvidia: len(nvidia.links) if all_links_read(nvidia) else None,
        source="ports for which nvmlDeviceGetNvLinkState answers",
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_nvlinks_active",
        "NVLinks of the GPU that are up.",
        lambda nvidia: links_up(nvidia) if all_links_read(nvidia) else None,
        source="nvmlDeviceGetNvLinkState",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_nvlinks_expected",
        help="NVLinks that should be up: the most that any GPU of this model in the node has up.",
        labels=GPU,
        series=_expected,
        of_discovery=True,
        source="gpuscape_gpu_nvlinks_active; only where all GPUs are linked, and not under MIG,"
        " which takes links down on Ampere",
    ),
    of_gpu_parts(
        "gpuscape_nvlink_up",
        "1 if the NVLink is up, else 0.",
        "link",
        _links(lambda link: link.active),
        source="nvmlDeviceGetNvLinkState",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_info",
        help="Device at the other end of an NVLink that is up; always 1.",
        labels=(*_LINK, "peer", "peer_pci_bus_id"),
        series=_ends,
        source="nvmlDeviceGetNvLinkRemote{DeviceType,PciInfo_v2}; a bus id for GPUs only",
    ),
    of_gpu_parts(
        "gpuscape_nvlink_line_rate_bytes_per_second",
        "Maximum rate of the NVLink in one direction.",
        "link",
        _links(lambda link: link.bytes_per_second),
        source="field NVML_FI_DEV_NVLINK_GET_SPEED of each link, else the GPU's",
    ),
    of_gpu_parts(
        "gpuscape_nvlink_received_bytes_total",
        "Data that came over one NVLink since the driver was loaded.",
        "link",
        _counters(lambda link: link.received_bytes),
        groups=(ReadingGroup.LINKS,),
        source="field NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX of the link",
    ),
    of_gpu_parts(
        "gpuscape_nvlink_sent_bytes_total",
        "Data that went over one NVLink since the driver was loaded.",
        "link",
        _counters(lambda link: link.sent_bytes),
        groups=(ReadingGroup.LINKS,),
        source="field NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX of the link",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_errors_total",
        help="Errors and recoveries of one NVLink since the driver was loaded; NVLink 5 and later.",
        labels=(*_LINK, "error"),
        series=_errors,
        groups=(ReadingGroup.LINKS,),
        source="fields NVML_FI_DEV_NVLINK_COUNT_* of the link",
    ),
    of_gpu_parts(
        "gpuscape_gpu_nvlink_errors_total",
        "Errors over all NVLinks since the driver was loaded; up to NVLink 4.",
        "error",
        part_readings(lambda sample: sample.nvlink_errors),
        groups=(ReadingGroup.NVLINK_ERRORS,),
        source="fields NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL",
    ),
    of_gpus(
        "gpuscape_gpu_nvlink_transfer_errors_total",
        "Errors over all NVLinks for which data was sent again or lost, since the driver was"
        " loaded.",
        _transfer_errors,
        groups=(ReadingGroup.NVLINK_ERRORS, ReadingGroup.LINK_ERRORS),
        source="gpuscape_nvlink_errors_total but for effective and symbol; up to NVLink 4"
        " gpuscape_gpu_nvlink_errors_total but for crc_flit",
    ),
)
