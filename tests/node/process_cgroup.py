# SPDX-License-Identifier: Apache-2.0
"""What the kernel counts for a process and how it limits it, in both versions of cgroups.

Source: cgroups(7), the kernel's admin-guide/cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from tests.node.cgroups import ROOT

_NANOSECONDS: Final = 1e9
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCgroup:
    """The cgroup of a process: a folder of each controller, of all together in version 2."""

    text: str
    """Of /proc/PID/cgroup."""
    root: Path = ROOT
    """Where hierarchies are mounted."""

    @classmethod
    def of(cls, process: psutil.Process) -> Self:
        """As seen by this process, outside of the other one's machine."""
        return cls(text=Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8"))

    @property
    def is_unified(self) -> bool:
        """Whether version 2 is there alone."""
        return [line[:3] for line in self.text.splitlines()] == ["0::"]

    def folder(self, controller: str) -> Path:
        """Where the files of this controller are."""
        entries = [line.split(":", 2) for line in self.text.splitlines()]
        if self.is_unified:
            return self.root / entries[0][2].lstrip("/")
        (path,) = [it[2] for it in entries if controller in it[1].split(",")]
        return self.root / controller / path.lstrip("/")

    @property
    def memory_limit_bytes(self) -> int:
        """The most it may have."""
        return int(self._read("memory", "memory.limit_in_bytes", "memory.max"))

    @property
    def memory_limit_hits(self) -> int:
        """How often that was not enough, also where memory could be freed."""
        if self.is_unified:
            return _field(self._read("memory", "", "memory.events"), "max")
        return int(self._read("memory", "memory.failcnt", ""))

    @property
    def memory_peak_bytes(self) -> int:
        """The most it has had, files included. Version 2 has it from Linux 5.19 on."""
        return int(self._read("memory", "memory.max_usage_in_bytes", "memory.peak"))

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far."""
        if self.is_unified:
            return _field(self._read("cpu", "", "cpu.stat"), "usage_usec") / _MICROSECONDS
        return int(self._read("cpuacct", "cpuacct.usage", "")) / _NANOSECONDS

    def lift_cpu_limit(self) -> None:
        """Let a container have all processor time: its pod too, whose limit is another one."""
        name, most = ("cpu.max", "max") if self.is_unified else ("cpu.cfs_quota_us", "-1")
        container = self.folder("cpu")
        for folder in (container.parent, container):
            (folder / name).write_text(most, encoding="utf-8")

    def _read(self, controller: str, first: str, second: str) -> str:
        """A file, by its name in version 1 and in version 2."""
        name = second if self.is_unified else first
        return (self.folder(controller) / name).read_text(encoding="utf-8")


def _field(text: str, name: str) -> int:
    """A number of a file that has a name and a number in each line."""
    (value,) = [line.split()[1] for line in text.splitlines() if line.split()[0] == name]
    return int(value)
