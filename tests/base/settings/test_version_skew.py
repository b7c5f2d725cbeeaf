# SPDX-License-Identifier: Apache-2.0
"""A program next to the chart that started it: one minor version, or a line that says so."""

from __future__ import annotations

import logging

import pytest

from base.settings.version_skew import VARIABLE, minor_version, of_process, report


@pytest.mark.parametrize(
    ("image", "manifests", "supported"),
    [
        ("0.1.0", "0.1.0", True),
        ("0.1.3", "0.1.0", True),
        ("0.1.0", "0.1.0-rc.1", True),
        ("0.2.0", "0.1.0", False),
        ("0.1.9", "0.2.0", False),
        ("1.1.0", "0.1.0", False),
        ("0.10.0", "0.1.0", False),
        ("0.1.0", "", True),
        ("0.1.0", "mine", True),
    ],
)
def test_versions_of_one_minor_run_together_and_what_is_not_known_is_no_fault(
    image: str, manifests: str, supported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    skew = of_process({VARIABLE: manifests}, image)

    with caplog.at_level(logging.INFO):
        report(skew)

    assert skew.is_supported is supported
    assert [it.levelname for it in caplog.records] == ([] if supported else ["WARNING"])


def test_the_line_names_both_versions_and_which_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report(of_process({VARIABLE: "0.1.0"}, "0.3.2"))

    (line,) = caplog.records
    assert line.getMessage() == "image and manifests of different versions"
    assert (vars(line)["image"], vars(line)["manifests"]) == ("0.3.2", "0.1.0")
    assert "set the image to 0.1.0 (image.tag of the chart" in vars(line)["action"]
    assert "manifests of 0.3.2" in vars(line)["action"]


def test_without_the_variable_nothing_differs() -> None:
    assert not of_process({}, "0.1.0").is_there


def test_patches_differ_which_explains_a_setting_that_is_not_known() -> None:
    skew = of_process({VARIABLE: "0.1.1"}, "0.1.0")

    assert skew.is_there
    assert skew.is_supported


@pytest.mark.parametrize(
    ("text", "pair"), [("v1.37.1", (1, 37)), ("0.1.0", (0, 1)), ("main", None), ("", None)]
)
def test_a_minor_version_is_two_numbers(text: str, pair: tuple[int, int] | None) -> None:
    assert minor_version(text) == pair
