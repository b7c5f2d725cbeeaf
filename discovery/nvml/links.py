# SPDX-License-Identifier: Apache-2.0
"""The NVLink ports of one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pynvml

from discovery.model import NvLink, Reason
from discovery.nvml.calls import Calls, Field, Handle
from discovery.nvml.conversions import boolean, bus_id, scaled, whole
from discovery.nvml_terms import LinkPeer

_PEERS = {
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: LinkPeer.GPU,
    pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: LinkPeer.NPU,
    pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: LinkPeer.SWITCH,
}

_PORTS = Field(number=pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, convert=whole(255))
_SPEED = pynvml.NVML_FI_DEV_NVLINK_GET_SPEED
_STATE = pynvml.NVML_FI_DEV_NVLINK_GET_STATE
_COMMON = pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
_MBPS = 1_000_000
_HIDDEN = "ffffffff"
"""Domain that NVSwitch machines report for the far end."""


def read_links(calls: Calls, handle: Handle, known: tuple[NvLink, ...] = ()) -> tuple[NvLink, ...]:
    """All NVLink ports in order; empty where the GPU has none.

    ``known`` is what they were when each was asked last, without a gap. Where one call about all
    ports says that each is still up or down as it was, its far end is the same too.

    Ports are counted by field 91; where that is not answered they are tried from
    0 until the driver refuses one. What a port does not report is None with a gap ``links``, or
    ``link_rates``, and the next one is read. A GPU without NVLink leaves one gap.
    """
    if known and _are_as_before(handle, known):
        return _with_rates(calls, handle, known)
    links = tuple(
        _link(calls, handle, port) if active else NvLink(link=port, active=active)
        for port, active in port_states(calls, handle)
    )
    return _with_rates(calls, handle, links)


def _are_as_before(handle: Handle, known: tuple[NvLink, ...]) -> bool:
    """Whether field 165 of every port says what nvmlDeviceGetNvLinkState said before."""
    fields = [
        (str(link.link), Field(number=_STATE, scope=link.link, convert=boolean)) for link in known
    ]
    return Calls().fields(fields, handle) == [link.active for link in known]


def port_states(calls: Calls, handle: Handle) -> Iterator[tuple[int, bool | None]]:
    """Number of each NVLink port and whether its link is active, as :func:`read_links` says."""
    (count,) = Calls().fields([("ports", _PORTS)], handle)
    any_port = False
    for port in range(pynvml.NVML_NVLINK_MAX_LINKS if count is None else count):
        tried = Calls(invalid_argument=Reason.UNSUPPORTED)
        active = tried.ask("links", "nvmlDeviceGetNvLinkState", handle, port, convert=boolean)
        refused = active is None and tried.gaps[0].reason is Reason.UNSUPPORTED
        if not (refused and any_port):
            calls.gaps += tried.gaps
        if refused:
            return
        any_port = True
        yield port, active


def _link(calls: Calls, handle: Handle, port: int) -> NvLink:
    """An active link. Virtual machines hide its far end though it is up, which is no gap."""
    tried = Calls(invalid_argument=Reason.UNSUPPORTED)
    version = tried.ask("links", "nvmlDeviceGetNvLinkVersion", handle, port, convert=whole(255))
    ends = Calls(invalid_argument=Reason.UNSUPPORTED)
    kind = ends.ask("links", "nvmlDeviceGetNvLinkRemoteDeviceType", handle, port, convert=_peer)
    far = ends.ask("links", "nvmlDeviceGetNvLinkRemotePciInfo", handle, port, convert=_far_end)
    unread = [gap for gap in ends.gaps if gap.reason is not Reason.UNSUPPORTED]
    calls.gaps += [gap for gap in tried.gaps if gap.reason is not Reason.UNSUPPORTED] + unread
    if kind is None and not unread:
        kind = LinkPeer.GPU if far else LinkPeer.UNKNOWN
    if unread and far is None and kind is LinkPeer.GPU:  # which GPU is what counts
        kind = None
    return NvLink(link=port, active=True, version=version, peer=kind, peer_bus_id=far)


def _peer(value: Any) -> LinkPeer:
    return _PEERS.get(whole(0xFFFF)(value), LinkPeer.UNKNOWN)


def _far_end(value: Any) -> str | None:
    """Bus id; None where the driver hides it."""
    address = bus_id(value)
    return None if address.startswith(_HIDDEN) else address


def _with_rates(calls: Calls, handle: Handle, links: tuple[NvLink, ...]) -> tuple[NvLink, ...]:
    """Line rates of the active links: each its own (field 164), else the common one (field 90)."""
    active = [link.link for link in links if link.active]
    if not active:
        return links
    tried = Calls()
    rates = tried.fields([(str(port), _rate(_SPEED, port)) for port in active], handle)
    own = {port: rate for port, rate in zip(active, rates, strict=True) if rate is not None}
    (common,) = (None,) if own else tried.fields([("all", _rate(_COMMON, 0))], handle)
    if common is None and len(own) < len(active):
        failed = [gap for gap in tried.gaps if gap.reason is not Reason.UNSUPPORTED]
        calls.gaps += [replace(gap, what="link_rates") for gap in failed[:1]]
    return tuple(
        replace(link, bytes_per_second=(own.get(link.link) or common) if link.active else None)
        for link in links
    )


def _rate(number: int, scope: int) -> Field[int]:
    return Field(number=number, scope=scope, convert=scaled(_MBPS, 1_000_000))
