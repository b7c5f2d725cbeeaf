# SPDX-License-Identifier: Apache-2.0
"""The agent's file with MIG configurations, edited while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.layouts.mig_config_source import MigConfigSource
from base.errors import BadInput
from mig.configs.config_overlap import Overlap

ONE = """\
version: v1
mig-configs:
  mine:
    - devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb": 7}
"""


def test_an_edit_under_the_same_name_is_seen_and_equal_content_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(ONE)
    source = MigConfigSource(file, Overlap.REFUSE)
    first = source.read()
    assert source.read() is first
    file.write_text(ONE.replace("7", "6"))
    assert source.read() != first


def test_a_broken_file_is_refused_by_line_and_key_until_it_is_mended(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(ONE.replace("mig-enabled", "mig-enable"))
    source = MigConfigSource(file, Overlap.REFUSE)
    with pytest.raises(BadInput, match=r"config\.yaml:\d+.*mig-enable") as refused:
        source.read()
    assert str(refused.value).startswith(f"{file}:"), "by its whole path, which an admin can open"
    file.write_text(ONE)
    assert source.read().selected("mine").name == "mine"
    file.unlink()
    with pytest.raises(BadInput, match=r"config\.yaml"):
        source.read()


@pytest.mark.parametrize("overlap", Overlap)
def test_configurations_have_the_rule_for_overlaps_of_the_settings(
    tmp_path: Path, overlap: Overlap
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(ONE)
    assert MigConfigSource(file, overlap).read().selected("mine").overlap is overlap
