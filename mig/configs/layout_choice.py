# SPDX-License-Identifier: Apache-2.0
"""A desired layout as a person states it, and the layouts that it means for a node's GPUs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts, gpu_names
from mig.configs.default_configs import generated_configs
from mig.configs.mig_configs import MigConfig, MigConfigs
from mig.gpu_layout import GpuLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoice:
    """A configuration's name or layouts in place, and the configurations with these names."""

    layout: str | MigConfig | None
    """Name of a configuration, or layouts in place; None for the only configuration of a file."""
    configs: MigConfigs | None = None
    """Configurations of a file; None for the default ones of the GPUs."""

    def gpu_layouts(self, gpus: Sequence[MigGpu]) -> dict[str, GpuLayout]:
        """GPU UUID to the desired layout; other GPUs stay as they are.

        Raises BadInput naming the key where the choice does not go with these GPUs.
        """
        config = self.layout
        if not isinstance(config, MigConfig):
            configs = generated_configs(gpus) if self.configs is None else self.configs
            config = configs.selected(config)
        return config_layouts(config, gpus)

    def is_of(self, gpus: Sequence[MigGpu]) -> bool:
        """Whether it names its GPUs, all among these: no other GPU has to be read."""
        known = {name for gpu in gpus for name in gpu_names(gpu)}
        return isinstance(self.layout, MigConfig) and all(
            spec.devices is not None and spec.devices <= known for spec in self.layout.specs
        )
