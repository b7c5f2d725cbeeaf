# SPDX-License-Identifier: Apache-2.0
"""Settings of labels: the agent's own, its rules, and the device plugin's configuration file."""

from __future__ import annotations

from agent.settings.agent_settings import AgentSettings
from api.mig_resources import MigStrategy
from base.errors import BadInput
from base.files import read_text
from discovery.host.host_facts import MACHINE_TYPE_FILE
from labelers.label_rules import LabelRule
from labelers.label_settings import LabelSettings, PluginConfig


def plugin_config(settings: AgentSettings) -> PluginConfig:
    """Settings of labels in the device plugin's file; empty where no file is named.

    Raises BadInput when the file cannot be read or is wrong.
    """
    file = settings.sharing_config
    if file is None:
        return PluginConfig()
    from labelers.plugin_config import parse_plugin_config  # YAML takes memory

    try:
        text = read_text(file)
    except BadInput as error:
        raise BadInput(f"sharing-config: {error}") from error
    return parse_plugin_config(text, str(file))


def label_rules(settings: AgentSettings) -> tuple[LabelRule, ...]:
    """The admin's rules for labels; none where no file is named.

    Raises BadInput when the file cannot be read or is wrong.
    """
    file = settings.label_rules
    if file is None:
        return ()
    from labelers.label_rules_file import parse_label_rules  # YAML takes memory

    try:
        text = read_text(file)
    except BadInput as error:
        raise BadInput(f"label-rules: {error}") from error
    return parse_label_rules(text, str(file))


def label_settings(
    settings: AgentSettings, plugin: PluginConfig, started_seconds: float
) -> LabelSettings:
    """Settings of all labelers; the agent's win over the plugin's, as flags win over a file.

    ``started_seconds`` is when this process started, Unix seconds. Raises BadInput where the file
    with rules for labels cannot be used.
    """
    timestamp = settings.timestamp
    if timestamp is None:
        timestamp = not plugin.no_timestamp
    return LabelSettings(
        mig_strategy=MigStrategy(settings.mig_strategy or plugin.mig_strategy or MigStrategy.NONE),
        sharing=plugin.sharing,
        timestamp_seconds=int(started_seconds) if timestamp else None,
        rules=label_rules(settings),
    )


def machine_type_file(settings: AgentSettings, plugin: PluginConfig) -> str:
    """Path of the machine type below the host's root."""
    return str(settings.machine_type_file or plugin.machine_type_file or MACHINE_TYPE_FILE)
