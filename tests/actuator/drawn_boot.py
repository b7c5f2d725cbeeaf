# SPDX-License-Identifier: Apache-2.0
"""Whether a drawn request may ask for a boot of its node, and what is wrong with how it asks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.change_record import ChangeRecord
from api.mig_mode_change import MigReboot
from tests.actuator.simulated_node import SimulatedNode

BOOT_SECONDS: Final = 3600.0
_BOOT_ID: Final = "proc/sys/kernel/random/boot_id"


@dataclass
class DrawnBoot:
    """The file of one request, and the boots that it has asked for."""

    on: SimulatedNode
    may_boot: bool
    takes_back: bool = False
    """A person takes the change back by its id."""
    brought: set[int] = field(default_factory=set)
    """GPUs whose mode waited when the node was booted for it."""
    asked: dict[str, str] = field(default_factory=dict)
    """UUID of a GPU to the boot in which one was asked for."""

    def __post_init__(self) -> None:
        """Begin without a file."""
        folder = Path(self._file.folder)
        folder.mkdir(exist_ok=True)
        self._file.remove()

    @property
    def _file(self) -> RebootSentinel:
        return RebootSentinel(folder=str(self.on.folder / "reboot"), seconds=BOOT_SECONDS)

    @property
    def sentinel(self) -> RebootSentinel | None:
        """As the actuator's settings have it."""
        return self._file if self.may_boot else None

    @property
    def setting(self) -> MigReboot:
        """The setting mig-reboot."""
        return MigReboot.SENTINEL if self.may_boot else MigReboot.OFF

    def judge_wait(self, waiting: Collection[ChangeRecord]) -> None:
        """Changes wait for a boot after the end of a worker."""
        assert self.may_boot, "nobody has allowed a boot"
        assert (self.on.folder / "reboot/required").exists(), "nobody is asked for the boot"
        now = (self.on.simulation.host_root / _BOOT_ID).read_text().strip()
        for record in waiting:
            assert record.boot_asked == now, "it waits although the node has booted"
            first = self.asked.setdefault(record.gpu, record.boot_asked)
            assert record.boot_asked == first, "a second boot was asked for"

    def judge_end(self) -> None:
        """Nothing waits any more."""
        left = (self.on.folder / "reboot/required").exists()
        assert not left, "the node would be booted for nothing"
