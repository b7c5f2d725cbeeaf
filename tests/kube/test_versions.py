# SPDX-License-Identifier: Apache-2.0
"""Versions of objects: which is older, and when the answer holds no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.versions import KnownVersions, is_older


def meta(version: object, uid: str = "u") -> dict[str, object]:
    return {"uid": uid, "resourceVersion": version}


@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_versions_compare_as_numbers_whatever_their_length(one: int, other: int) -> None:
    assert is_older(str(one), str(other)) is (one < other)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.0", "٣", "None", None])
def test_what_is_no_decimal_number_is_never_older(text: object) -> None:
    assert not is_older(text, "9")
    assert not is_older("1", text)


def test_an_older_version_of_the_same_object_is_passed_over() -> None:
    versions: KnownVersions[str] = KnownVersions()
    taken = [versions.take("n", meta(version)) for version in ("9", "10", "9", "10", "11")]
    assert taken == [True, True, False, True, True]


def test_an_object_made_anew_counts_by_itself_and_so_does_each_name() -> None:
    versions: KnownVersions[str] = KnownVersions()
    assert versions.take("n", meta("10"))
    assert versions.take("m", meta("5"))
    assert versions.take("n", meta("5", uid="other"))


def test_after_a_loss_and_after_a_deletion_any_version_is_taken() -> None:
    versions: KnownVersions[str] = KnownVersions()
    assert versions.take("n", meta("10"))
    versions.forget()
    assert versions.take("n", meta("5"))
    versions.drop("n")
    versions.drop("n")
    assert versions.take("n", meta("4"))
    assert not versions.take("n", meta("3"))
