# SPDX-License-Identifier: Apache-2.0
"""Text of the settings that shape DCGM series becomes their values, or is refused."""

from __future__ import annotations

import pytest

from exporters.dcgm.series_setting_kinds import DEVICES


@pytest.mark.parametrize("text", ["f", "g", "i", "g:0,2-3", "i:7", "g:1+i:0,2"])
def test_devices_are_shown_as_text_that_gives_them_back(text: str) -> None:
    assert DEVICES.show(DEVICES.read(text)) == text


@pytest.mark.parametrize("text", ["f:0", "x", "g:", "g:a", "g:3-2", "gi", "g+g", "f+i", "g+", ""])
def test_what_selects_no_devices_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected f, g, i"):
        DEVICES.read(text)
