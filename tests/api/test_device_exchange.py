# SPDX-License-Identifier: Apache-2.0
"""The agent's file of devices: what is read, and what is refused, whoever wrote it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import device_exchange
from api.device_exchange import (
    MOST_BYTES,
    DamagedExchange,
    DeviceExchange,
    ExchangeOfOtherBoot,
    UnknownExchangeVersion,
    read_exchange,
    written,
)
from api.versioned import VersionedFormat
from tests.devices.exchange_files import (
    BOOT,
    OTHER_BOOT,
    document,
    gpu_entry,
    gpu_uuid,
    links_entry,
    mig_entry,
    text,
)

SPLIT = gpu_entry(0, mig_enabled=True, mig_devices=[mig_entry(1), mig_entry(2)])
FIRST_OF_ALL = "".join(
    f"{sum(1 << at for at in [b for b in range(2) if mask >> b & 1][:size]):02x}"
    if mask.bit_count() >= size
    else "00"
    for size in (1, 2)
    for mask in range(4)
)


def read(content: dict[str, Any]) -> DeviceExchange:
    return read_exchange(text(content), BOOT)


def test_all_fields_of_a_file_are_read() -> None:
    exchange = read(
        document(
            SPLIT,
            gpu_entry(1, verdicts=[{"health": "unhealthy", "reason": "gpu-lost"}]),
            links=links_entry(2),
            table=FIRST_OF_ALL,
        )
    )
    first, second = exchange.gpus
    assert (exchange.generation, exchange.reading, exchange.boot_id) == (3, 7, BOOT)
    assert (first.uuid, first.index, first.bus_id, first.minor, first.numa) == (
        gpu_uuid(0),
        0,
        "0000:10:00.0",
        0,
        0,
    )
    device = first.mig_devices[0]
    assert (device.profile, device.gpu_instance, device.compute_instance) == ("1g.5gb", 1, 0)
    assert device.capability_minors == (110, 111)
    assert (first.unhealthy_reasons, second.unhealthy_reasons) == ((), ("gpu-lost",))
    assert exchange.best_set(0b10, 1) == 0b10
    assert exchange.best_set(0b11, 1) == 0b01
    assert exchange.best_set(0b11, 2) == 0b11


@pytest.mark.parametrize(("available", "size"), [(0b01, 2), (0b100, 1), (0b11, 0), (0b11, 3)])
def test_a_request_that_the_table_cannot_meet_has_no_set(available: int, size: int) -> None:
    exchange = read(document(links=links_entry(2), table=FIRST_OF_ALL))
    assert exchange.best_set(available, size) is None


def test_what_is_written_is_read_again_as_it_was() -> None:
    exchange = read(document(SPLIT, gpu_entry(1), links=links_entry(2), table=FIRST_OF_ALL))
    assert read_exchange(written(exchange), BOOT) == exchange


def test_keys_of_a_later_writer_are_ignored() -> None:
    assert read(document(gpu_entry(0, later=[1]), later={"a": 1})).gpus[0].uuid == gpu_uuid(0)


def test_content_that_no_reader_takes_is_not_written() -> None:
    twice = msgspec.structs.replace(read(document()), gpus=read(document()).gpus[:1] * 2)
    with pytest.raises(DamagedExchange):
        written(twice)


def test_another_boot_and_another_version_are_told_apart() -> None:
    with pytest.raises(ExchangeOfOtherBoot):
        read(document(boot_id=OTHER_BOOT))
    with pytest.raises(UnknownExchangeVersion):
        read(document(v=2))


def test_the_version_before_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    (present,) = device_exchange.READ_FORMATS
    following = VersionedFormat(
        name="the next format",
        remedy="wait",
        content=DeviceExchange,
        version=2,
        most_length=MOST_BYTES,
    )
    monkeypatch.setattr(device_exchange, "READ_FORMATS", (following, present))
    assert [read(document(v=version)).v for version in (1, 2)] == [1, 2]
    with pytest.raises(UnknownExchangeVersion):
        read(document(v=3))


BRACKETS = b'{"v":1,"later":' + b"[" * (MOST_BYTES - 100)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * (1 << 20),
        BRACKETS,
        b"",
        b"null",
        b"NaN",
        b"\xff\xfe",
        b'{"v":NaN}',
        b'{"v":1}',
        text(document())[:-10],
        text(document()) + b"{}",
        text(document()).replace(b'"generation": 3', b'"generation": 3e400'),
        text(document()).replace(b'"generation": 3', b'"generation": NaN'),
        text(document()) + b" " * MOST_BYTES,
    ],
)
def test_bytes_that_are_no_file_of_ours_are_damage(data: bytes) -> None:
    with pytest.raises(DamagedExchange):
        read_exchange(data, BOOT)


UUID = gpu_uuid(0)
FORGED_GPU_FIELDS: list[tuple[str, Any]] = [
    *(
        ("uuid", value)
        for value in (
            *("", "all", "void", "none", "/dev/mem", f"../{UUID[3:]}", f"{UUID},all", f"{UUID}::0"),
            *(f"{UUID}\n", UUID.lower(), UUID[:-1] + "\u0660", f"MIG-{UUID[4:]}", None, 1),
        )
    ),
    *(("index", value) for value in (-1, 32, 1.5, "0", None, True, 2**70)),
    *(("minor", value) for value in (-1, 254, 255, 2**32, "0", "../mem", 0.5)),
    *(("bus_id", value) for value in ("", "10:00.0", "0000:10:00.8", "0000:10:00.0\n", "../../x")),
    *(("numa", value) for value in (-1, 65536, "0")),
    *(("product", value) for value in ("/etc", "a\nb", "\u202ea", "x" * 97, '"', "a=b,c", "{{")),
    ("memory_bytes", -1),
    ("memory_bytes", 2**60),
    ("mig_enabled", "yes"),
    ("mig_devices", [mig_entry()]),
    ("mig_devices", {}),
    ("verdicts", [{"health": "fine", "reason": "gpu-lost"}]),
    *(
        ("verdicts", [{"health": "unhealthy", "reason": reason}])
        for reason in ("", "gpu lost", "x" * 64, "gpu-lost\n", "/x", "{{x}}", "Gpu")
    ),
    ("verdicts", [{"health": "unhealthy", "reason": "gpu-lost"}] * 33),
]


@pytest.mark.parametrize(("field", "value"), FORGED_GPU_FIELDS)
def test_a_forged_field_of_a_gpu_makes_the_whole_file_damage(field: str, value: Any) -> None:
    with pytest.raises(DamagedExchange):
        read(document(gpu_entry(0, **{field: value}), gpu_entry(1)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("uuid", value) for value in ("", UUID, f"MIG-{UUID}/1/0", f"MIG-{UUID[4:]}\n")),
        *(("profile", value) for value in ("", "1g", "9g.5gb", "1g.5gb/..", "1g.5gb\n", "all")),
        *(("gpu_instance", value) for value in (-1, 256, "1")),
        *(("compute_instance", value) for value in (-1, 256, None)),
        # 1 and 2 are the rights to change and to watch MIG
        *(("capability_minors", [minor, 50]) for minor in (-1, 0, 1, 2, 1 << 20, "3")),
        *(("capability_minors", [50, minor]) for minor in (-1, 0, 1, 2, 1 << 20, "3")),
        *(("capability_minors", value) for value in ([50], [50, 51, 52], 50, [50, 50])),
    ],
)
def test_a_forged_field_of_a_mig_device_makes_the_whole_file_damage(field: str, value: Any) -> None:
    forged = mig_entry(1, **{field: value})
    with pytest.raises(DamagedExchange):
        read(document(gpu_entry(0, mig_enabled=True, mig_devices=[forged])))


DOUBLED = {
    "uuid": [gpu_entry(0), gpu_entry(1, uuid=UUID)],
    "index": [gpu_entry(0), gpu_entry(1, index=0)],
    "bus id": [gpu_entry(0), gpu_entry(1, bus_id="0000:10:00.0")],
    "minor": [gpu_entry(0), gpu_entry(1, minor=0)],
    "order": [gpu_entry(1), gpu_entry(0)],
    "mig uuid": [
        gpu_entry(0, mig_enabled=True, mig_devices=[mig_entry(1)]),
        gpu_entry(1, mig_enabled=True, mig_devices=[mig_entry(1, uuid=mig_entry(1)["uuid"])]),
    ],
    "instance": [
        gpu_entry(
            0,
            mig_enabled=True,
            mig_devices=[mig_entry(1), mig_entry(1, uuid=mig_entry(5)["uuid"])],
        )
    ],
    "node of another GPU's instance": [
        gpu_entry(0, mig_enabled=True, mig_devices=[mig_entry(1)]),
        gpu_entry(
            1,
            mig_enabled=True,
            mig_devices=[mig_entry(1, at=1, capability_minors=[110, 211])],
        ),
    ],
    "node of another compute instance": [
        gpu_entry(
            0,
            mig_enabled=True,
            mig_devices=[mig_entry(1), mig_entry(1, ci=1, capability_minors=[110, 111])],
        )
    ],
}


@pytest.mark.parametrize("gpus", DOUBLED.values(), ids=DOUBLED)
def test_what_two_devices_share_is_damage(gpus: list[dict[str, Any]]) -> None:
    with pytest.raises(DamagedExchange):
        read(document(*gpus))


def test_compute_instances_of_one_gpu_instance_share_its_node() -> None:
    devices = [mig_entry(1, ci=0), mig_entry(1, ci=1)]
    (gpu,) = read(document(gpu_entry(0, mig_enabled=True, mig_devices=devices))).gpus
    assert [device.capability_minors for device in gpu.mig_devices] == [(110, 111), (110, 112)]


def test_more_gpus_than_a_node_has_are_damage() -> None:
    with pytest.raises(DamagedExchange):
        read(document(*(gpu_entry(at % 32, index=at) for at in range(33))))


@pytest.mark.parametrize(
    "fields",
    [
        {"boot_id": "x"},
        {"boot_id": f"{BOOT}\n"},
        {"written_at": "now"},
        {"written_at": "2026-13-29T08:00:00Z"},
        {"generation": -1},
        {"reading": 2**60},
        {"links": links_entry(1)},
        {"links": links_entry(33)},
        {"links": links_entry(2, nv="")},
        {"links": links_entry(2, pc="9")},
        {"links": links_entry(2, ids=["/dev/mem", ""])},
        {"links": links_entry(2, bus=["/dev/mem", ""])},
        {"links": links_entry(2, nic=[["../x", "0000:01:00.0", "11"]])},
        {"table": FIRST_OF_ALL},
        {"links": links_entry(2), "table": FIRST_OF_ALL[:-2]},
        {"links": links_entry(2), "table": "zz" * 8},
        {"links": links_entry(2), "table": FIRST_OF_ALL[:-2] + "07"},
        {"links": links_entry(2), "table": FIRST_OF_ALL[:2] + "02" + FIRST_OF_ALL[4:]},
        {"links": links_entry(2), "table": FIRST_OF_ALL[:2] + "00" + FIRST_OF_ALL[4:]},
        {"links": links_entry(9), "table": "00" * 18},
    ],
)
def test_a_forged_field_of_the_file_is_damage(fields: dict[str, Any]) -> None:
    with pytest.raises(DamagedExchange):
        read(document(**fields))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
GPU_KEYS = sorted(SPLIT)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return list(itertools.chain.from_iterable(map(_texts, inner)))


@given(key=st.sampled_from(GPU_KEYS), value=JSON)
def test_whatever_stands_in_a_field_no_text_with_a_slash_or_a_line_end_is_read(
    key: str, value: Any
) -> None:
    data = json.dumps(document({**SPLIT, key: value})).encode()
    try:
        exchange = read_exchange(data, BOOT)
    except DamagedExchange:
        return
    for word in _texts(json.loads(msgspec.json.encode(exchange))):
        assert not set(word) & set("/\\\n\0,=")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_named_error(data: bytes) -> None:
    with pytest.raises((DamagedExchange, UnknownExchangeVersion)):
        read_exchange(data, BOOT)
