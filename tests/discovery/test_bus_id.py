# SPDX-License-Identifier: Apache-2.0
"""PCI bus ids in every spelling, and their order."""

from __future__ import annotations

import pytest

from discovery.bus_id import bus_order, normal_bus_id


@pytest.mark.parametrize(
    ("text", "bus_id"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),  # NVML's
        ("0000:1B:00.0", "0000:1b:00.0"),
        (" 1b:00.0\n", "0000:1b:00.0"),
        ("1b:00", "0000:1b:00.0"),
        ("1b:1f.7", "0000:1b:1f.7"),
        ("00010000:e1:00.0", "10000:e1:00.0"),
    ],
)
def test_every_spelling_of_a_bus_id_becomes_that_of_sysfs(text: str, bus_id: str) -> None:
    assert normal_bus_id(text) == bus_id


@pytest.mark.parametrize("text", ["", "1b", "0000:00:1b:00.0", "0000:xx:00.0", "0000:1b:00.g"])
def test_anything_else_is_no_bus_id(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # int's own message, or ours
        normal_bus_id(text)


def test_domains_of_five_digits_come_last() -> None:
    ids = ["10000:01:00.0", "ffff:01:00.0", "0000:1b:00.1", "0000:1b:00.0", "0000:0a:00.0"]
    assert sorted(ids, key=bus_order) == list(reversed(ids))
