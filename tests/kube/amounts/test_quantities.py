# SPDX-License-Identifier: Apache-2.0
"""Amounts are read as Kubernetes writes them, exactly, and what is none is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from base.errors import BadInput
from kube.amounts.quantities import counted_amount, quantity, shown


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("+2", 2),
        ("-1", -1),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("500m", Fraction(1, 2)),
        ("3u", Fraction(3, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("1k", 1000),
        ("1M", 10**6),
        ("2G", 2 * 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 1024),
        ("1.5Mi", 3 << 19),
        ("16Gi", 16 << 30),
        ("2Ti", 2 << 40),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("1e3", 1000),
        ("12E2", 1200),
        ("5e-1", Fraction(1, 2)),
    ],
)
def test_every_suffix_is_its_factor(text: str, number: Fraction) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1gi", "1K", "ten", "1e", "1e999", "0x10", "1_000", "٣", "1" * 65]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no quantity such as 2, 500m or 16Gi"):
        quantity(text)


def test_cores_count_in_thousandths_and_all_else_in_whole_units_rounded_up() -> None:
    assert counted_amount("cpu", "1.5") == 1500
    assert counted_amount("cpu", "100u") == 1
    assert counted_amount("memory", "1500m") == 2
    assert counted_amount("nvidia.com/gpu", 8) == 8


def test_amounts_are_shown_in_the_unit_that_people_use() -> None:
    assert shown("cpu", 1500) == "1.5"
    assert shown("memory", 3 << 29) == "1.5 GiB"
    assert shown("ephemeral-storage", 1 << 30) == "1.0 GiB"
    assert shown("hugepages-2Mi", 1 << 30) == "1.0 GiB"
    assert shown("nvidia.com/gpu", 8) == "8"
