# SPDX-License-Identifier: Apache-2.0
"""What XID codes mean: one short text for each that NVIDIA describes."""

from __future__ import annotations

import pytest

from exporters.dcgm.xid_messages import XID_MESSAGES, xid_attributes
from exporters.prometheus_text import MOST_LABEL_CHARACTERS


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("0", "No Error"),
        ("79", "GPU has gone from the PCIe bus"),
        ("41", "Copy engine 2 error"),
        ("135", "Copy engine 19 error"),
        ("88", "Video decoder 3 error"),
        ("142", "Video encoder 3 error"),
        ("105", "JPEG engine 7 error"),
        ("172", "Error in SRAM that could not be corrected"),
        ("5", "Unknown Error"),
        ("173", "Unknown Error"),
        ("4294967294", "Unknown Error"),
    ],
)
def test_a_code_has_its_text_and_one_that_nobody_describes_is_unknown(
    code: str, message: str
) -> None:
    assert xid_attributes(code) == {"err_code": code, "err_msg": message}


def test_all_codes_that_nvidia_uses_are_described() -> None:
    unused = {5, 10, 14, 15, 17, 23, 49, 50, 51, 52, 53, 55, 91, 108}

    assert set(XID_MESSAGES) == set(range(173)) - unused


def test_texts_fit_a_label_without_escapes() -> None:
    assert not [
        text
        for text in XID_MESSAGES.values()
        if not text.isascii() or not text.isprintable() or set(text) & set('"\\')
    ]
    assert max(map(len, XID_MESSAGES.values())) <= MOST_LABEL_CHARACTERS
