# SPDX-License-Identifier: Apache-2.0
"""What each NVLink of one GPU counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pynvml

from discovery.model import Gap, Reason
from discovery.nvml.calls import Calls, Field, Handle
from discovery.nvml.conversions import COUNT, scaled
from discovery.nvml.links import port_states
from discovery.sample import LinkCounters, LinkError

_KIB = scaled(1024, 1 << 52)

_RECEIVED = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
_SENT = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX

_ERRORS: Mapping[LinkError, int] = {
    LinkError.MALFORMED_PACKETS: pynvml.NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
    LinkError.BUFFER_OVERRUNS: pynvml.NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS,
    LinkError.RECEIVE: pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS,
    LinkError.RECEIVE_REMOTE: pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS,
    LinkError.RECEIVE_GENERAL: pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS,
    LinkError.INTEGRITY: pynvml.NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
    LinkError.DISCARDED: pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS,
    LinkError.RECOVERIES: pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
    LinkError.RECOVERIES_FAILED: pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
    LinkError.EFFECTIVE: pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
    LinkError.SYMBOL: pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
}
"""215, all recoveries, is the sum of those that went well (213) and those that failed (214)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The active NVLinks of a GPU and what they count; the same from discovery to discovery."""

    active: tuple[int, ...]
    errors: tuple[LinkError, ...]
    gaps: tuple[Gap, ...]
    """What they do not report; part of every sample."""


def find_ports(handle: Handle) -> Ports:
    """Find which links are up, and try on the first one which errors they count.

    Up to NVLink 4 that is none of them. Raises GpuLost as :meth:`Calls.ask` does.
    """
    calls = Calls()
    active = tuple(port for port, is_up in port_states(calls, handle) if is_up)
    if not active:
        return Ports(active=(), errors=(), gaps=tuple(calls.gaps))
    tried = Calls()
    tried.fields([(error, _error(active[0], error)) for error in _ERRORS], handle)
    missing = {gap.what for gap in tried.gaps if gap.reason is Reason.UNSUPPORTED}
    counted = tuple(error for error in _ERRORS if error not in missing)
    if not counted:
        calls.miss("links.errors", Reason.UNSUPPORTED, tried.gaps[0].source, tried.gaps[0].detail)
    return Ports(active=active, errors=counted, gaps=tuple(calls.gaps))


def read_link_counters(
    calls: Calls, handle: Handle, ports: Ports, *, traffic: bool = True
) -> tuple[LinkCounters, ...]:
    """Errors of the active links and, where selected, their traffic; all from one call.

    Empty where no link counts any of that.
    """
    calls.gaps += ports.gaps
    fields = dict(_asked(ports, traffic))
    if not fields:
        return ()
    read = calls.fields(tuple(fields.values()), handle)
    counts = dict(zip(fields, read, strict=True))
    return tuple(
        LinkCounters(
            link=port,
            received_bytes=counts.get((port, _RECEIVED)),
            sent_bytes=counts.get((port, _SENT)),
            errors=tuple(
                (error, count)
                for error in ports.errors
                if (count := counts[port, _ERRORS[error]]) is not None
            ),
        )
        for port in ports.active
    )


def _asked(ports: Ports, traffic: bool) -> Iterator[tuple[tuple[int, int], tuple[str, Field[int]]]]:
    """Link and number of each field; the name of its gap, and the field."""
    for port in ports.active:
        if traffic:
            yield (port, _RECEIVED), (f"links.{port}.received_bytes", _traffic(port, _RECEIVED))
            yield (port, _SENT), (f"links.{port}.sent_bytes", _traffic(port, _SENT))
        for error in ports.errors:
            yield (port, _ERRORS[error]), (f"links.{port}.{error}", _error(port, error))


def _traffic(port: int, number: int) -> Field[int]:
    return Field(number=number, scope=port, convert=_KIB)


def _error(port: int, error: LinkError) -> Field[int]:
    return Field(number=_ERRORS[error], scope=port, convert=COUNT)
