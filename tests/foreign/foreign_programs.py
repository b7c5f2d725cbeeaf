# SPDX-License-Identifier: Apache-2.0
"""Programs that are not ours, unchanged, on a simulated machine.

They load the simulator's libnvidia-ml.so.1. What they read below /sys and /proc by themselves is
the machine's too: they run in a mount namespace of their own, with its trees over the host's.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from simulator.clibrary.served_machine import ServedMachine, served_machine
from simulator.simulation import Simulation
from tests.controlplane.builds import NotPreparedError
from tests.controlplane.lifetime import end_with_parent

_COVER = 'for top in $1; do mount --rbind "$2/$top" "/$top" || exit 99; done; shift 2; exec "$@"'
_NO_MOUNT = 99


@dataclass(frozen=True, slots=True)
class Foreign:
    """A machine that foreign programs see."""

    simulation: Simulation
    machine: ServedMachine

    def run(
        self,
        *command: str | Path,
        covered: Sequence[str] = ("sys",),
        path: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program there; ``covered`` of the host's trees are the machine's.

        ``path`` is where it finds other programs; None: where this process does.

        Raises NotPreparedError where this process may not make mount namespaces.
        """
        return subprocess.run(
            self._there(command, covered),
            env=self._environment(path),
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=end_with_parent(),
        )

    def start(
        self,
        *command: str | Path,
        log: IO[bytes],
        environment: Mapping[str, str],
        covered: Sequence[str] = ("sys",),
        path: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program there that goes on, as :meth:`run` runs one; ``log`` gets its output.

        Raises NotPreparedError where this process may not make mount namespaces.
        """
        return subprocess.Popen(
            self._there(command, covered),
            env={**self._environment(path), **environment},
            stdout=log,
            stderr=log,
            preexec_fn=end_with_parent(),
        )

    def _there(self, command: Sequence[str | Path], covered: Sequence[str]) -> list[str | Path]:
        if not covered:
            return list(command)
        cover = ["sh", "-c", _COVER, "sh", " ".join(covered), str(self.machine.driver_root)]
        return [*mount_namespace(), *cover, *command]

    def _environment(self, path: str | None) -> dict[str, str]:
        folder = "" if self.machine.library is None else str(self.machine.library.parent)
        there = os.environ["PATH"] if path is None else path
        return {**os.environ, "LD_LIBRARY_PATH": folder, "PATH": there}

    def python(self, *arguments: str | Path) -> str:
        """What a Python program prints that reads nothing but the library."""
        done = self.run(sys.executable, *arguments, covered=())
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def foreign(simulation_of: str | Simulation) -> Iterator[Foreign]:
    """Serve a machine, or the one of this name, within.

    In a folder with a short path: with /proc covered a socket's address has 107 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="gs-") as folder:
        simulation = simulation_of
        if isinstance(simulation, str):
            simulation = Simulation.create(simulation, Path(folder))
        with served_machine(simulation) as machine:
            yield Foreign(simulation, machine)


@functools.cache
def mount_namespace() -> tuple[str, ...]:
    """What starts a command in a mount namespace of its own, as root of it."""
    unshare = shutil.which("unshare")
    ways = ((unshare, "--mount"), (unshare, "--map-root-user", "--mount"))
    for way in ways if unshare else ():
        tried = subprocess.run(
            [*map(str, way), "mount", "--bind", "/tmp", "/tmp"],  # noqa: S108  # it is there
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return tuple(map(str, way))
    raise NotPreparedError(
        "programs that read /sys by themselves need mount namespaces, which this machine refuses:"
        " run the tests as root, or allow user namespaces"
    )
