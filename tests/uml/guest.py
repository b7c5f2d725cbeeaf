# SPDX-License-Identifier: Apache-2.0
"""Tests on a Linux that has cgroup v2 alone: ``python -m tests.uml.guest PYTEST-ARGUMENTS``.

The guest is a process, :mod:`tests.uml.kernel`. It reads the host's files as they are, and
writes none of them but in one temporary folder. Where it cannot run, the command prints the
reason and ends with 0; with CI=true it ends with 1.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final

from tests.controlplane.builds import NotPreparedError
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.programs import ROOT
from tests.node import images
from tests.quick_folder import quick_folder
from tests.uml import first_process, kernel
from tests.uml.first_process import Job

MEMORY_GIB: Final = 6
"""Enough for a control plane and two nodes."""
DISK_GIB: Final = 12
"""As the guest sees it; on the host it takes what is written."""
DISK: Final = "disk"
"""In the folder of one run."""
SLOWER: Final = 4
"""How many times longer tests may wait: a guest has one processor, and slow system calls."""
TIMEOUT_SECONDS: Final = 600
"""Of a test that names none, before it is multiplied."""
PASSED_ON: Final = ("CONTROLPLANE", "HOME", "PATH", "SCALE", "XDG_CACHE_HOME")
"""Variables that the command has of this process."""
_LAST_LINES: Final = 3


def main(arguments: Sequence[str]) -> int:
    """Run pytest in a guest; its exit code."""
    try:
        kernel.demand(MEMORY_GIB)
        images.our_image()  # what the guest made would end with it
        return run(pytest_job(arguments), say=sys.stdout.write)
    except NotPreparedError as error:
        sys.stdout.write(f"{error}\n")
        return int(os.environ.get("CI") == "true")


def pytest_job(arguments: Sequence[str]) -> Job:
    """Pytest in one process; what cannot run there fails."""
    flags = ("-v", "--color=no", "-n", "0", "-p", "no:cacheprovider")
    longest = f"--timeout={TIMEOUT_SECONDS * SLOWER}"
    return Job(
        command=(sys.executable, "-m", "pytest", *flags, longest, *arguments),
        folder=str(ROOT),
        environment={**environment(), "CI": "true", "SLOWER": str(SLOWER)},
    )


def environment() -> Mapping[str, str]:
    """The variables that a job has of this process."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def run(job: Job, *, memory_gib: int = MEMORY_GIB, say: Callable[[str], object]) -> int:
    """Boot a guest for the job; the job's exit code.

    ``say`` takes the lines that the job writes. Raises NotPreparedError where the guest does not
    boot, RuntimeError where it ends before the job does.
    """
    root = kernel.unpacked()
    # not in memory, where the guest has its own
    with quick_folder(Path(tempfile.gettempdir())) as folder:
        scratch = folder.path
        result = scratch / "result"
        result.mkdir()
        (result / first_process.JOB).write_text(json.dumps(asdict(job)), encoding="utf-8")
        command = _command(root, scratch, memory_gib)
        before: list[str] = []
        with _started(command) as output:
            for line in output:
                begun = (result / first_process.BEGUN).exists()
                if begun:  # the guest has it open: nothing is left of it, however this ends
                    (scratch / DISK).unlink(missing_ok=True)
                (say if begun else before.append)(line.replace("\r\n", "\n"))
        code = result / first_process.CODE
        if code.exists():
            return int(code.read_text(encoding="utf-8"))
        if (result / first_process.BEGUN).exists():
            raise RuntimeError("the guest ended before its job")
        why = " / ".join(line.strip() for line in before[-_LAST_LINES:])
        raise NotPreparedError(f"User Mode Linux did not boot here: {why or 'it wrote nothing'}")


def _command(root: Path, scratch: Path, memory_gib: int) -> Sequence[str | Path]:
    """The kernel's command line; makes the disk. What follows ``--`` is for the first process."""
    disk = scratch / DISK
    with disk.open("wb") as file:
        file.truncate(DISK_GIB * kernel.GIB)
    # no journal: what is on the disk ends with the guest
    make = ("mkfs.ext4", "-q", "-F", "-O", "^has_journal", disk)
    subprocess.run(make, check=True, capture_output=True)
    own = (sys.executable, Path(first_process.__file__), kernel.modules(root), scratch / "result")
    if any(" " in str(part) for part in own):
        raise NotPreparedError(f"no User Mode Linux with a space in a path: {own}")
    return [
        root / kernel.PROGRAM,
        *(f"mem={memory_gib}G", f"ubd0={disk}", f"uml_dir={scratch}/"),
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"),
        *("quiet", "con=null", "con0=null,fd:1", f"init={own[0]}", "--", *own[1:]),
    ]


@contextmanager
def _started(command: Sequence[str | Path]) -> Iterator[IO[str]]:
    """Its output, line by line; it has ended when the block has.

    It ends by SIGTERM with all its processes, which SIGKILL would leave.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(kernel.MEMORY)},
        start_new_session=True,  # a terminal's Ctrl-C is for us
        preexec_fn=end_with_parent(signal.SIGTERM),
    ) as started:
        assert started.stdout
        try:
            yield started.stdout
        finally:
            started.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
