# SPDX-License-Identifier: Apache-2.0
"""The agent's settings of labels win over those in the device plugin's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.settings.agent_settings import AgentSettings
from agent.settings.labels_from_settings import label_settings, plugin_config
from api.mig_resources import MigStrategy
from base.errors import BadInput
from labelers.groups.sharing import NOTHING_SHARED, SharedResource, Sharing, SharingStrategy
from labelers.label_settings import LabelSettings, PluginConfig

STARTED = 1_700_000_000.75
SHARING = Sharing(
    strategy=SharingStrategy.TIME_SLICING,
    resources=(SharedResource(name="nvidia.com/gpu", replicas=4, renamed=False),),
)


def test_without_settings_and_file_nothing_is_shared_and_the_start_is_a_label() -> None:
    assert label_settings(AgentSettings(), PluginConfig(), STARTED) == LabelSettings(
        mig_strategy=MigStrategy.NONE, sharing=NOTHING_SHARED, timestamp_seconds=1_700_000_000
    )


def test_the_file_of_the_device_plugin_counts_where_the_settings_say_nothing() -> None:
    plugin = PluginConfig(sharing=SHARING, mig_strategy=MigStrategy.MIXED, no_timestamp=True)
    assert label_settings(AgentSettings(), plugin, STARTED) == LabelSettings(
        mig_strategy=MigStrategy.MIXED, sharing=SHARING, timestamp_seconds=None
    )


@pytest.mark.parametrize("no_timestamp", [None, False, True])
@pytest.mark.parametrize("timestamp", [False, True])
def test_the_settings_win_over_the_file(timestamp: bool, no_timestamp: bool | None) -> None:
    settings = AgentSettings(mig_strategy="single", timestamp=timestamp)
    plugin = PluginConfig(mig_strategy=MigStrategy.MIXED, no_timestamp=no_timestamp)
    found = label_settings(settings, plugin, STARTED)
    assert found.mig_strategy is MigStrategy.SINGLE
    assert found.timestamp_seconds == (1_700_000_000 if timestamp else None)


def test_the_file_is_read_where_one_is_named(tmp_path: Path) -> None:
    assert plugin_config(AgentSettings()) == PluginConfig()
    file = tmp_path / "plugin.yaml"
    file.write_text("version: v1\nflags: {migStrategy: mixed}\n")
    found = plugin_config(AgentSettings(sharing_config=file))
    assert found.mig_strategy is MigStrategy.MIXED


def test_a_file_that_is_missing_or_wrong_is_named_in_the_error(tmp_path: Path) -> None:
    file = tmp_path / "plugin.yaml"
    with pytest.raises(BadInput) as missing:
        plugin_config(AgentSettings(sharing_config=file))
    assert str(missing.value) == (f"sharing-config: cannot read {file}: No such file or directory")
    file.write_text("version: v1\nflags: {migStrategy: some}\n")
    with pytest.raises(BadInput, match=str(file)):
        plugin_config(AgentSettings(sharing_config=file))
