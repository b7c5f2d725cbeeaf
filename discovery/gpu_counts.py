# SPDX-License-Identifier: Apache-2.0
"""How many GPUs each source counts, and what it means where these counts differ. Pure.

sysfs shows PCI functions that are bound to the nvidia driver, NVML counts GPUs, and the node knows
those that were there before. A count that could not be had is no count of 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCounts:
    """The counts of one moment, without GPUs that another driver has or that are excluded."""

    sysfs: int | None = 0
    """PCI functions bound to the nvidia driver. None: sysfs shows no PCI function at all."""
    nvml: int | None = 0
    """GPUs that NVML counts. None: the call failed."""
    why_uncounted: str = ""
    """Why NVML's count is None."""
    integrated: int = 0
    """GPUs in NVML's count that are part of a system on chip, which have no PCI bus id."""
    unaddressed: int = 0
    """GPUs that belong to the node, of which no source gives the bus id."""
    former: int = 0
    """GPUs of the node in an earlier boot, while it has fewer and that is not settled; else 0."""
    on_pci: bool = True
    """sysfs shows the GPUs of this platform. It does not in WSL2, nor integrated GPUs."""

    def without(self, displays: int) -> GpuCounts:
        """The counts without so many display adapters: sources count them, the node does not."""
        if not displays:
            return self
        sysfs = self.sysfs and max(self.sysfs - displays, 0)
        return replace(self, sysfs=sysfs, nvml=self.nvml and max(self.nvml - displays, 0))

    @property
    def discrete(self) -> int | None:
        """NVML's count without integrated GPUs."""
        return None if self.nvml is None else self.nvml - self.integrated

    @property
    def agreed(self) -> bool:
        """sysfs and NVML count the same."""
        return self.sysfs is not None and self.sysfs == self.discrete

    @property
    def settled(self) -> bool:
        """The number of GPUs in this boot is certain enough to replace that of an earlier one."""
        return self.agreed or (not self.on_pci and self.nvml is not None)

    @property
    def lacks_host_tree(self) -> bool:
        """sysfs shows fewer GPUs than there are, so it is not the host's, or not all of it."""
        return self.on_pci and (self.sysfs is None or (self.discrete or 0) > self.sysfs)

    @property
    def why_not_listed(self) -> str:
        """Why there is no list of the GPUs from either source; empty where there is one."""
        if self.nvml is None and not self.sysfs:
            return f"nvmlDeviceGetCount: {self.why_uncounted}; sysfs shows no GPU either"
        return ""

    @property
    def why_unaddressed(self) -> str:
        """How many GPUs of the node have no known bus id, and why; empty where there is none."""
        if self.former:
            return (
                f"the node had {self.former} GPUs in an earlier boot, and sysfs and NVML do not"
                f" agree on a smaller number: {self.unaddressed} are missing"
            )
        count = self.unaddressed
        return f"the node has more GPUs, of which no bus id is known: {count}" if count else ""

    @property
    def why_unsure(self) -> str:
        """Why there may be a GPU although none has a bus id; empty where there is none."""
        if self.unaddressed:
            return self.why_unaddressed
        if self.integrated:
            return "the GPU is an integrated one, which is not supported"
        if not self.why_not_listed and self.lacks_host_tree:
            return "NVML counts no GPU, and sysfs shows no PCI device with which to compare that"
        return self.why_not_listed


NO_GPUS = GpuCounts()
"""The counts where neither source has a GPU."""
