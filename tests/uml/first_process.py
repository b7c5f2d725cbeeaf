# SPDX-License-Identifier: Apache-2.0
"""The first process of a guest: sets the system up, runs one command, ends the kernel.

``python first_process.py MODULES RESULT``: folders of the host, with the kernel's modules and for
the result. RESULT has :data:`JOB`, a :class:`Job` as JSON; the first process writes :data:`BEGUN`
there when the system is set up, and :data:`CODE`, the command's exit code, when that has ended.

The host's file system is mounted read-only. The guest's root is an overlay over it, and what the
guest writes is on a disk of its own, which the host removes. It imports nothing of this
repository: it runs before the guest has a /proc.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

JOB: Final = "job.json"
BEGUN: Final = "begun"
CODE: Final = "code"

DISK: Final = "/dev/ubda"
MODULES: Final = ("overlay", "bridge", "veth")
"""Parts of the kernel that a node needs and that are not built in."""
CONTROLLERS: Final = ("cpu", "io", "memory", "pids")
MOUNTS: Final = (
    ("devtmpfs", "/dev", "mode=755"),
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("tmpfs", "/run", "mode=755"),
    ("devpts", "/dev/pts", "ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),  # noqa: S108 - it is made here
    ("cgroup2", "/sys/fs/cgroup", ""),
)
LINKS: Final = {"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1"}
TEMPORARY: Final = "/tmp"  # noqa: S108 - of a system of which this is the first process
OPEN_FILES: Final = 65536
POWER_OFF: Final = 0x4321FEDC
"""Source: the kernel's include/uapi/linux/reboot.h."""

_PROCESSOR: Final = "cpu MHz\t\t: 1000.000\n"
"""A kubelet does not start without this line, which User Mode Linux does not have.

Source: cAdvisor's GetClockSpeed."""

_FINIT_MODULE: Final = 313
"""A system call of x86_64, for which alone Debian has the package."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the guest is started for."""

    command: Sequence[str]
    folder: str
    """Where the command starts."""
    environment: Mapping[str, str]
    """All variables of the command but TMPDIR, which is on the guest's disk."""


def main(modules: str, result: str) -> None:
    """Set the guest up and run the job; the kernel ends with this function."""
    try:
        load(Path(modules), MODULES[0])
        enter_root(Path("/mnt"), Path(result))
        for name in MODULES[1:]:
            load(Path(modules), name)
        prepare()
        Path(result, BEGUN).touch()
        job = Job(**json.loads(Path(result, JOB).read_text(encoding="utf-8")))
        Path(result, CODE).write_text(str(run(job)), encoding="utf-8")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stdout.write(f"{explained(error)}\n")
    finally:
        sys.stdout.flush()
        os.sync()
        _libc.reboot(POWER_OFF)


def load(modules: Path, name: str) -> None:
    """Have the kernel load a module and those it depends on. Raises OSError.

    Source: modules.dep(5), of which the line of a module names the last one to be loaded first.
    """
    lines = (modules / "modules.dep").read_text(encoding="utf-8").splitlines()
    (line,) = [it for it in lines if it.partition(":")[0].endswith(f"/{name}.ko")]
    wanted, _, needed = line.partition(":")
    for file in (*reversed(needed.split()), wanted):
        descriptor = os.open(modules / file, os.O_RDONLY)
        try:
            failed = _libc.syscall(_FINIT_MODULE, descriptor, b"", 0)
            if failed and (number := ctypes.get_errno()) != errno.EEXIST:
                raise OSError(number, os.strerror(number), file)
        finally:
            os.close(descriptor)


def enter_root(place: Path, result: Path) -> None:
    """Make the overlay the root of all that follows; /tmp and ``result`` are no part of it."""
    _mount("ext4", place, source=DISK)
    root = place / "root"
    for folder in ("root", "upper", "work"):
        (place / folder).mkdir()
    _made(place, TEMPORARY).chmod(0o1777)
    layers = f"lowerdir=/,upperdir={place}/upper,workdir={place}/work"
    _mount("overlay", root, layers)
    _call("mount", "--bind", f"{place}{TEMPORARY}", f"{root}{TEMPORARY}")
    for kind, where, options in MOUNTS:
        _mount(kind, _made(root, where), options)
    _mount("hostfs", _made(root, str(result)), str(result))
    os.chdir(root)
    # not chroot alone: nsenter goes to the root of all mounts
    _call("mount", "--no-mtab", "--move", str(root), "/")
    os.chroot(".")
    os.chdir("/")


def prepare() -> None:
    """Give the system what a node and its tests expect of one that runs."""
    for link, target in LINKS.items():
        Path(link).symlink_to(target)
    cpuinfo = Path("/run/cpuinfo")
    cpuinfo.write_text(f"processor\t: 0\n{_PROCESSOR}\n", encoding="utf-8")
    _call("mount", "--bind", str(cpuinfo), "/proc/cpuinfo")
    for name in CONTROLLERS:
        Path("/sys/fs/cgroup/cgroup.subtree_control").write_text(f"+{name}", encoding="utf-8")
    socket.sethostname("guest")
    _call("ip", "link", "set", "lo", "up")
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))


def run(job: Job) -> int:
    """The command's exit code; what has lost its parent meanwhile is waited for too."""
    environment = {**job.environment, "TMPDIR": TEMPORARY}
    with subprocess.Popen(
        job.command, cwd=job.folder, env=environment, stdin=subprocess.DEVNULL
    ) as started:
        while True:
            process, status = os.wait()
            if process == started.pid:
                started.returncode = os.waitstatus_to_exitcode(status)
                return started.returncode


def _made(root: Path, where: str) -> Path:
    folder = root / where.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _mount(kind: str, where: Path, options: str = "", source: str = "none") -> None:
    _call("mount", "-t", kind, *(("-o", options) if options else ()), source, str(where))


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def explained(error: OSError | subprocess.CalledProcessError) -> str:
    """One line for people."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"
    return str(error)


if __name__ == "__main__":
    main(*sys.argv[1:3])  # the kernel adds words of its own
