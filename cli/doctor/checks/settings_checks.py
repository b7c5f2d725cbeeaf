# SPDX-License-Identifier: Apache-2.0
"""Files that the agent's settings name: whether they can be used. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cli.doctor.facts.here_facts import BrokenSettingsFile, HereFacts
from cli.doctor.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    found,
    not_needed,
)

SETTINGS_FILE_BROKEN: Final = FindingKind(
    name="settings-file-unusable",
    severity=FindingSeverity.ERROR,
    cause="A file that a setting names cannot be read or is wrong: an agent does not start with it,"
    " and one that runs goes on with what it has read before.",
    fix="Mend what the sentence names and try it with `gpuscape labels --explain`; then restart the"
    " agent, or send it SIGHUP.",
    page="configuration.md",
)

KINDS: Final = (SETTINGS_FILE_BROKEN,)


def settings_files(facts: HereFacts) -> Iterator[DoctorFinding]:
    """Whether the files of label-rules and sharing-config can be used."""
    read = {"sharing-config": facts.plugin_config, "label-rules": facts.label_settings}
    named = (facts.settings.sharing_config, facts.settings.label_rules)
    if named == (None, None):
        not_needed("neither label-rules nor sharing-config names a file")
    for setting, each in read.items():
        if isinstance(each, BrokenSettingsFile):
            yield found(SETTINGS_FILE_BROKEN, setting, each.why)


CHECKS: Final = (settings_files,)
