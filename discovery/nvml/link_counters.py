"""What each NVLink of one GPU counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from discovery.model import Gap, Reason
from discovery.nvml.calls import Calls, Field, Handle, scaled
from discovery.nvml.counters import COUNT
from discovery.nvml.links import port_states
from discovery.sample import LinkCounters, LinkError

_KIB = scaled(1024, 1 << 52)

_TRAFFIC = {
    "received_bytes": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    "sent_bytes": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
}

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
    """What they do not tell, which stands beside every sample."""


def find_ports(handle: Handle) -> Ports:
    """Look which links are up, and try on the first one which errors they count.

    Up to NVLink 4 that is none of them. Raises GpuLost as :meth:`Calls.ask` does.
    """
    calls = Calls()
    active = tuple(port for port, is_up in port_states(calls, handle) if is_up)
    if not active:
        return Ports(active=(), errors=(), gaps=tuple(calls.gaps))
    tried = Calls()
    tried.fields([_field(active[0], error, _ERRORS[error]) for error in _ERRORS], handle)
    missing = {gap.what for gap in tried.gaps if gap.reason is Reason.UNSUPPORTED}
    counted = tuple(error for error in _ERRORS if _name(active[0], error) not in missing)
    if not counted:
        calls.miss("links.errors", Reason.UNSUPPORTED, tried.gaps[0].source, tried.gaps[0].detail)
    return Ports(active=active, errors=counted, gaps=tuple(calls.gaps))


def read_link_counters(
    calls: Calls, handle: Handle, ports: Ports, *, traffic: bool = True
) -> tuple[LinkCounters, ...]:
    """Errors of the active links and, where asked for, their traffic; all from one call.

    Empty where no link counts any of that.
    """
    calls.gaps += ports.gaps
    fields = [field for port in ports.active for field in _fields(port, ports.errors, traffic)]
    if not fields:
        return ()
    found = calls.fields(fields, handle)
    return tuple(_counters(port, ports.errors, found) for port in ports.active)


def _fields(port: int, errors: tuple[LinkError, ...], traffic: bool) -> list[Field]:
    moved = [_field(port, name, number) for name, number in _TRAFFIC.items()] if traffic else []
    return moved + [_field(port, error, _ERRORS[error]) for error in errors]


def _field(port: int, name: str, number: int) -> Field:
    convert = _KIB if name in _TRAFFIC else COUNT
    return Field(what=_name(port, name), field=number, scope=port, convert=convert)


def _name(port: int, name: str) -> str:
    return f"links.{port}.{name}"


def _counters(port: int, errors: tuple[LinkError, ...], found: Mapping[str, Any]) -> LinkCounters:
    counted = ((error, found.get(_name(port, error))) for error in errors)
    return LinkCounters(
        link=port,
        received_bytes=found.get(_name(port, "received_bytes")),
        sent_bytes=found.get(_name(port, "sent_bytes")),
        errors=tuple((error, count) for error, count in counted if count is not None),
    )
