# SPDX-License-Identifier: Apache-2.0
"""Files and ConfigMaps that the agent's settings name: whether they can be used. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from diagnosis.facts.cluster_facts import ClusterFacts
from diagnosis.facts.local_facts import BrokenSettingsFile, LocalFacts
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    Unread,
    end_check_not_needed,
    finding,
)
from exporters.dcgm.counters_format import CountersConfig

SETTINGS_FILE_BROKEN: Final = FindingKind(
    name="settings-file-unusable",
    severity=FindingSeverity.ERROR,
    cause="A file that a setting names cannot be read or is wrong: an agent does not start with"
    " it; a running agent keeps what it read before.",
    fix="Correct what the message names and try it with `gpuscape check-config`; then restart the"
    " agent, or send it SIGHUP.",
    page="configuration.md",
)

COUNTERS_MAP_UNREAD: Final = FindingKind(
    name="counters-config-map-unread",
    severity=FindingSeverity.WARNING,
    cause="The ConfigMap that `counters-from` names cannot be read or has no counters: meanwhile"
    " the agent serves the counters of the file in `counters`, or the default ones.",
    fix="Put the counters under the key `metrics` of the ConfigMap, and give the agent's account"
    " the right to get it.",
    page="metrics.md",
)

COUNTERS_NOT_SERVED: Final = FindingKind(
    name="counters-not-served",
    severity=FindingSeverity.NOTE,
    cause="The counters file or ConfigMap has lines that are not served: the agent logs each of"
    " them and serves the others.",
    fix="Run `gpuscape check-config` on it: it lists these lines and the reasons, and the lines at"
    " which dcgm-exporter would end.",
    page="configuration.md",
)

KINDS: Final = (SETTINGS_FILE_BROKEN, COUNTERS_MAP_UNREAD, COUNTERS_NOT_SERVED)


def check_settings_files(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether what settings name can be used, and whether all of it is."""
    settings = facts.settings
    named = (
        *(settings.sharing_config, settings.label_rules, settings.mig_config),
        *(settings.counters, settings.counters_from),
    )
    if not any(named):
        end_check_not_needed("no setting names a file of labels, counters or MIG configurations")
    cluster = facts.cluster
    read = {
        "sharing-config": facts.plugin_config,
        "label-rules": facts.label_settings,
        "counters": facts.counters,
        "mig-config": facts.broken_mig_configs,
        "counters-from": cluster.counters if isinstance(cluster, ClusterFacts) else None,
    }
    for setting, content in read.items():
        if isinstance(content, BrokenSettingsFile):
            yield finding(SETTINGS_FILE_BROKEN, setting, content.why)
        elif isinstance(content, Unread):
            yield finding(COUNTERS_MAP_UNREAD, setting, content.why)
        elif isinstance(content, CountersConfig) and content.skipped:
            count = len(content.skipped)
            lines = "1 line is" if count == 1 else f"{count} lines are"
            yield finding(COUNTERS_NOT_SERVED, setting, f"{lines} not served: {content.skipped[0]}")


CHECKS: Final = (check_settings_files,)
