# SPDX-License-Identifier: Apache-2.0
"""A program that gpuscape does not have, whose settings are declared in one module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from web.address import ADDRESS, Address


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySettings:
    """All settings of the tiny program."""

    standalone: bool = setting(False, kinds.FLAG, "Run without a cluster.", subject="Cluster")
    node_name: str | None = setting(
        None,
        kinds.text_kind("NAME"),
        "This node's name.",
        unset="the host's name",
        variables=("NODE_NAME",),
    )
    discover_interval_seconds: float = setting(
        60.0, kinds.duration_kind("1s"), "How often devices are listed.", subject="Readings"
    )
    deadline_seconds: float = setting(5.0, kinds.duration_kind("100ms"), "Time to answer.")
    jitter_ratio: float = setting(0.1, kinds.ratio_kind(0.5), "Random part of each interval.")
    listen: Address = setting(Address(host="", port=9402), ADDRESS, "Where it is served.")
    mig_strategy: str | None = setting(
        None,
        kinds.choice_kind("none", "single", "mixed"),
        "How MIG devices appear.",
        subject="Labels",
    )
    feature_file: Path | None = setting(None, kinds.PATH, "Write labels to this file.")
    resource_names: tuple[str, ...] = setting((), kinds.NAMES, "Resources that are GPUs too.")
    log_level: str = log_level()
    log_format: str = log_format()

    def __post_init__(self) -> None:
        """Raises BadInput where two settings contradict each other."""
        if self.standalone and self.node_name:
            raise BadInput("standalone and node-name exclude each other: give one of them")


TINY_SETTINGS = ProgramSettings(TinySettings)
