# SPDX-License-Identifier: Apache-2.0
"""Families of PCIe and NVLink."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from discovery.sample import LinkError, ReadingGroup
from exporters.dcgm.dcgm_family import COUNT_MOST, TOTAL_MOST, DcgmFamily, Paired, Value
from exporters.dcgm.family_values import (
    Sides,
    both,
    link_errors,
    link_rate,
    nvlink_rate,
    of_number,
    of_part,
    of_sample,
    received_only,
    sent_only,
)
from exporters.prometheus_text import MetricType

LINKS = 18
"""DCGM has a field for each of so many links; what a GPU has beyond is in the totals only."""

_rate = partial(DcgmFamily, most=COUNT_MOST, gpus="with NVLink")
_errors = partial(
    DcgmFamily,
    kind=MetricType.COUNTER,
    most=TOTAL_MOST,
    group=ReadingGroup.NVLINK_ERRORS,
    gpus="with NVLink, before Blackwell",
)
_number = partial(DcgmFamily, most=TOTAL_MOST, group=ReadingGroup.NUMBERS)
_pcie = partial(DcgmFamily, most=64, group=ReadingGroup.PCIE)

_BOTH_FIELDS = (*range(440, 446), *range(475, 481), 446, 447, 448, 494, 495, 496)
"""Field ids by link: DCGM put them wherever there was room."""

_SIDES: tuple[tuple[str, int, tuple[int, ...], Sides, str], ...] = (
    ("", 449, _BOTH_FIELDS, both, "both directions"),
    ("TX_", 843, tuple(range(825, 825 + LINKS)), sent_only, "sent"),
    ("RX_", 897, tuple(range(879, 879 + LINKS)), received_only, "received"),
)
"""Name, field id of the total, field ids by link, the counters, in words."""

_COUNTED: tuple[tuple[int, str, str, tuple[LinkError, ...], str], ...] = (
    (1204, "COUNT_RX_MALFORMED_PACKET_ERRORS", "RX_PACKET_MALFORMED_TOTAL",
     (LinkError.MALFORMED_PACKETS,), "Malformed packets received"),
    (1205, "COUNT_RX_BUFFER_OVERRUN_ERRORS", "RX_PACKET_DROPPED_TOTAL",
     (LinkError.BUFFER_OVERRUNS,), "Packets received and dropped, since buffers were full"),
    (1206, "COUNT_RX_ERRORS", "RX_ERROR_TOTAL",
     (LinkError.RECEIVE,), "Packets received with an error"),
    (1207, "COUNT_RX_REMOTE_ERRORS", "RX_REMOTE_ERROR_TOTAL",
     (LinkError.RECEIVE_REMOTE,), "Packets that the other end marked as bad"),
    (1208, "COUNT_RX_GENERAL_ERRORS", "RX_GENERAL_ERROR_TOTAL",
     (LinkError.RECEIVE_GENERAL,), "Packets received with headers that do not match"),
    (1209, "COUNT_LOCAL_LINK_INTEGRITY_ERRORS", "INTEGRITY_ERROR_TOTAL",
     (LinkError.INTEGRITY,), "Times that a link's errors came too close together"),
    (1210, "COUNT_TX_DISCARDS", "TX_DISCARD_TOTAL",
     (LinkError.DISCARDED,), "Packets that were not sent"),
    (1211, "COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", "RECOVERY_SUCCESSFUL_TOTAL",
     (LinkError.RECOVERIES,), "Times that a link came back"),
    (1212, "COUNT_LINK_RECOVERY_FAILED_EVENTS", "RECOVERY_FAILED_TOTAL",
     (LinkError.RECOVERIES_FAILED,), "Times that a link did not come back"),
    (1213, "COUNT_LINK_RECOVERY_EVENTS", "RECOVERY_EVENT_TOTAL",
     (LinkError.RECOVERIES, LinkError.RECOVERIES_FAILED), "Times that a link had to come back"),
    (1214, "COUNT_RX_SYMBOL_ERRORS", "RX_SYMBOL_ERROR_TOTAL",
     (LinkError.SYMBOL,), "Symbols received with an error"),
    (1219, "COUNT_EFFECTIVE_ERRORS", "EFFECTIVE_ERROR_TOTAL",
     (LinkError.EFFECTIVE,), "Errors left after forward error correction"),
)  # fmt: skip
"""Field id, name, the name since DCGM 4.6, what is counted, in words."""

_NUMBERS: tuple[tuple[int, int, str, str, MetricType, str], ...] = (
    (1200, 201, "COUNT_TX_PACKETS", "TX_PACKET_TOTAL", MetricType.COUNTER,
     "Packets sent, over all NVLinks."),
    (1201, 202, "COUNT_TX_BYTES", "TX_BYTES_TOTAL", MetricType.COUNTER,
     "Bytes sent, over all NVLinks."),
    (1202, 203, "COUNT_RX_PACKETS", "RX_PACKET_TOTAL", MetricType.COUNTER,
     "Packets received, over all NVLinks."),
    (1203, 204, "COUNT_RX_BYTES", "RX_BYTES_TOTAL", MetricType.COUNTER,
     "Bytes received, over all NVLinks."),
    (1215, 222, "COUNT_SYMBOL_BER", "SYMBOL_BER_RAW", MetricType.GAUGE,
     "Rate of symbols with an error, as the driver packs mantissa and exponent."),
    (1217, 220, "COUNT_EFFECTIVE_BER", "EFFECTIVE_BER_RAW", MetricType.GAUGE,
     "Rate of errors left after correction, as the driver packs mantissa and exponent."),
)  # fmt: skip
"""Field, NVML's field, name, the name since DCGM 4.6, type, in words."""

_C2C: tuple[tuple[int, int, str, str | None, MetricType, str], ...] = (
    (285, 170, "LINK_COUNT", "LINK_QUANTITY", MetricType.GAUGE, "NVLink-C2C links."),
    (286, 171, "LINK_STATUS", None, MetricType.GAUGE, "Status of NVLink-C2C: 1 up, 0 down."),
    (287, 172, "MAX_BANDWIDTH", None, MetricType.GAUGE,
     "Most data over one NVLink-C2C link, in MB/s."),
    (1400, 231, "LINK_ERROR_INTR", None, MetricType.COUNTER,
     "Interrupts by errors of NVLink-C2C."),
    (1401, 232, "LINK_ERROR_REPLAY", None, MetricType.COUNTER,
     "Replays over NVLink-C2C."),
    (1402, 233, "LINK_ERROR_REPLAY_B2B", None, MetricType.COUNTER,
     "Replays over NVLink-C2C right after another one."),
    (1403, 234, "LINK_POWER_STATE", None, MetricType.GAUGE,
     "Power state of NVLink-C2C, as the driver numbers it."),
)  # fmt: skip
"""NVLink-C2C: field, NVML's field, name, the name since DCGM 4.6, type, in words."""
_FEC_HISTORY = range(16)

_ERRORS_BY_LINK: tuple[tuple[str, int, tuple[int, ...], str], ...] = (
    ("CRC_FLIT", 2, (*range(400, 406), *range(451, 457), *range(406, 409), *range(481, 484)),
     "Flow control packets with a wrong checksum"),
    ("CRC_DATA", 3, (*range(410, 416), *range(457, 463), *range(416, 419), *range(484, 487)),
     "Data with a wrong checksum"),
    ("REPLAY", 0, (*range(420, 426), *range(463, 469), *range(426, 429), *range(487, 490)),
     "Packets that had to be sent again"),
    ("RECOVERY", 1, (*range(430, 436), *range(469, 475), *range(436, 439), *range(491, 494)),
     "Times that the link had to be set up again"),
)  # fmt: skip
"""Name, NVML_NVLINK_ERROR_DL_*, field ids by link, in words."""


def _link_errors(link: int, kind: int) -> Value:
    return lambda reading: reading.link_errors.get((link, kind))


FAMILIES: tuple[DcgmFamily, ...] = (
    DcgmFamily(
        field=202,
        name="DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        renamed="DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
        kind=MetricType.COUNTER,
        help="PCIe packets that had to be sent again.",
        value=of_sample(lambda sample: sample.pcie_replays),
        most=COUNT_MOST,
    ),
    _pcie(
        field=237,
        name="DCGM_FI_DEV_PCIE_LINK_GEN",
        help="PCIe generation at which the link runs now.",
        value=of_part(lambda sample: sample.pcie, lambda pcie: pcie.generation),
    ),
    _pcie(
        field=238,
        name="DCGM_FI_DEV_PCIE_LINK_WIDTH",
        help="PCIe lanes that the link uses now.",
        value=of_part(lambda sample: sample.pcie, lambda pcie: pcie.width),
    ),
    _errors(
        field=409,
        name="DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        renamed="DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
        help="Flow control units with a wrong checksum over all NVLinks.",
        value=of_part(lambda sample: sample.nvlink_errors, lambda errors: errors.crc_flit),
    ),
    _errors(
        field=419,
        name="DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        renamed="DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL",
        help="Data with a wrong checksum over all NVLinks.",
        value=of_part(lambda sample: sample.nvlink_errors, lambda errors: errors.crc_data),
    ),
    _errors(
        field=429,
        name="DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        renamed="DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL",
        help="Packets that had to be sent again over all NVLinks.",
        value=of_part(lambda sample: sample.nvlink_errors, lambda errors: errors.replay),
    ),
    _errors(
        field=439,
        name="DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        renamed="DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
        help="Times that NVLinks had to be set up again, over all of them.",
        value=of_part(lambda sample: sample.nvlink_errors, lambda errors: errors.recovery),
    ),
    *(
        _rate(
            field=field,
            name=f"DCGM_FI_DEV_NVLINK_{side}BANDWIDTH_TOTAL",
            renamed=f"DCGM_FI_DEV_NVLINK_{side}THROUGHPUT_TOTAL",
            help=f"Data over all NVLinks, {words}, in the last interval: a rate in MB/s.",
            value=nvlink_rate(counts),
        )
        for side, field, _, counts, words in _SIDES
    ),
    *(
        _rate(
            field=fields[link],
            name=f"DCGM_FI_DEV_NVLINK_{side}BANDWIDTH_L{link}",
            renamed=f"DCGM_FI_DEV_NVLINK_{side}THROUGHPUT_L{link}",
            help=f"Data over NVLink {link}, {words}, in the last interval: a rate in MB/s.",
            value=link_rate(link, counts),
            group=ReadingGroup.LINKS,
        )
        for side, _, fields, counts, words in _SIDES
        for link in range(LINKS)
    ),
    *(
        _errors(
            field=fields[link],
            name=f"DCGM_FI_DEV_NVLINK_{name}_ERROR_COUNT_L{link}",
            renamed=f"DCGM_FI_DEV_NVLINK_{name}_ERROR_L{link}_TOTAL",
            help=f"{words}, over NVLink {link}.",
            value=_link_errors(link, kind),
            group=ReadingGroup.NVLINK_ERRORS_BY_LINK,
        )
        for name, kind, fields, words in _ERRORS_BY_LINK
        for link in range(LINKS)
    ),
    _number(
        field=1220,
        name="DCGM_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL",
        renamed="DCGM_FI_DEV_NVLINK_ECC_ERROR_TOTAL",
        kind=MetricType.COUNTER,
        help="Data errors that ECC found, over all NVLinks.",
        value=of_number(160),
        gpus="with NVLink",
    ),
    _number(
        field=1501,
        name="DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS",
        renamed="DCGM_FI_DEV_PCIE_CORRECTABLE_ERROR_TOTAL",
        kind=MetricType.COUNTER,
        help="Errors of the PCIe link that were corrected.",
        value=of_number(173),
        gpus="where the driver reports it",
    ),
    *(
        _number(
            field=field,
            name=f"DCGM_FI_DEV_NVLINK_{name}",
            renamed=f"DCGM_FI_DEV_NVLINK_{renamed}",
            kind=kind,
            help=words,
            value=of_number(number),
            gpus="with NVLink, Blackwell and later",
        )
        for field, number, name, renamed, kind, words in _NUMBERS
    ),
    *(
        _number(
            field=1404 + symbols,
            name=f"DCGM_FI_DEV_NVLINK_COUNT_FEC_HISTORY_{symbols}",
            kind=MetricType.COUNTER,
            help=f"Blocks over all NVLinks in which {symbols} symbols were corrected.",
            value=of_number(235 + symbols),
            gpus="with NVLink, Blackwell and later",
        )
        for symbols in _FEC_HISTORY
    ),
    *(
        _number(
            field=field,
            name=f"DCGM_FI_DEV_C2C_{name}",
            renamed=None if renamed is None else f"DCGM_FI_DEV_C2C_{renamed}",
            kind=kind,
            help=words,
            value=of_number(number),
            gpus="with NVLink-C2C",
        )
        for field, number, name, renamed, kind, words in _C2C
    ),
    *(
        DcgmFamily(
            field=field,
            name=f"DCGM_FI_DEV_NVLINK_{name}",
            renamed=f"DCGM_FI_DEV_NVLINK_{renamed}",
            kind=MetricType.COUNTER,
            help=f"{words}, over all NVLinks.",
            value=link_errors(*errors),
            most=TOTAL_MOST,
            group=ReadingGroup.LINKS,
            gpus="with NVLink, Blackwell and later",
        )
        for field, name, renamed, errors, words in _COUNTED
    ),
)

_UNKNOWN = "Unknown"
_P2P: Mapping[int, str] = {
    0: "OK",
    1: "ChipsetNotSupported",
    2: "GPUNotSupported",
    3: "TopologyNotSupported",
    4: "DisabledByRegKey",
    5: "NotSupported",
    6: _UNKNOWN,
}
"""NVML_P2P_STATUS_* by dcgm-exporter's words."""

PAIRED: tuple[Paired, ...] = (
    Paired(
        field=9004,
        name="DCGM_EXP_P2P_STATUS",
        help="Whether the GPU can reach the memory of another over NVLink: 0 it can, else why not.",
        value=lambda reading: reading.nvlink_p2p,
        word=lambda status: _P2P.get(status, _UNKNOWN),
        group=ReadingGroup.P2P,
        gpus="in a node with several",
    ),
)
