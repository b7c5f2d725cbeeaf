# SPDX-License-Identifier: Apache-2.0
"""A machine for one node, made of namespaces: ``python -m tests.node.machine SPEC``.

SPEC is a :class:`Spec` as JSON. The machine has PIDs, mounts, a network, a host name and cgroups
of its own; its first process takes orders as :mod:`tests.controlplane.supervisor` does, on the
standard input of this one, which stays outside: it ends the machine when an order or the end of
the process that the machine is for says so, and removes what is left. Should this one be killed,
the kernel ends the first process, and with it all others; the next machine removes the cgroups.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.controlplane import supervisor
from tests.controlplane.lifetime import signal_at_end_of_parent
from tests.node import cgroups

NEW_MOUNTS: Final = 0x00020000
NEW_CGROUPS: Final = 0x02000000
NEW_NAMES: Final = 0x04000000
NEW_IPC: Final = 0x08000000
NEW_PIDS: Final = 0x20000000
NEW_NETWORK: Final = 0x40000000
"""What unshare(2) makes anew. Source: the kernel's include/uapi/linux/sched.h."""

DISK: Final = "disk"
"""In the machine's folder: its /var/lib, removed at the end."""
LOGS: Final = "var-log"
"""In the machine's folder: its /var/log, which stays."""
REBOOTS: Final = "reboots"
"""In the machine's folder, while it is ended for the next one to start there: its disk stays."""
BOOT_ID: Final = "kernel/random/boot_id"
"""Below /proc/sys: each machine has another one, where the kernel has one for all."""
FIRST_PROCESS: Final = "machine.pid"
"""In the machine's folder: the id of its first process, as seen from outside."""

SYSCTLS: Final = {
    "kernel/keys/root_maxbytes": 25000000,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
"""What a kubelet sets where it is otherwise. It would be the whole host's: a machine has files in
their place that say so. Source: setupKernelTunables in the kubelet's container manager."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A machine as its maker wants it."""

    name: str
    """Host name, and the name of its Node."""
    folder: str
    """The one folder of the file system that it may write to: see :data:`DISK`, :data:`LOGS`."""
    until: int
    """The process with which it ends at the latest."""
    network: int
    """A process in the network that it is connected to."""
    bridge: str
    """The bridge in that network."""
    address: str
    """Its own there, with the length of the prefix."""
    gateway: str
    """Where it reaches all else."""
    pods: str
    """The addresses of its pods, which that network is told to send here."""

    def arguments(self) -> tuple[str, str]:
        """Module and argument that start it."""
        return "tests.node.machine", json.dumps(asdict(self))


def main(arguments: Sequence[str]) -> None:
    """Run the machine until an order or the end of its maker ends it."""
    spec = Spec(**json.loads(arguments[0]))
    watched = os.pidfd_open(spec.until)
    (Path(spec.folder) / REBOOTS).unlink(missing_ok=True)
    cgroups.sweep()
    own = cgroups.Cgroups.create()
    try:
        with _first_process(spec, own) as first:
            ended = os.pidfd_open(first)
            select.select([ended, watched], [], [])
    finally:
        own.remove()
        if not (Path(spec.folder) / REBOOTS).exists():
            shutil.rmtree(Path(spec.folder) / DISK, ignore_errors=True)


@contextmanager
def _first_process(spec: Spec, own: cgroups.Cgroups) -> Iterator[int]:
    """The machine's first process; it and all others have ended when the block has."""
    here = os.open("/proc/self/ns/pid", os.O_RDONLY)
    there_is_a_network, say_so = os.pipe()
    is_connected, connected = os.pipe()
    unshare(NEW_PIDS)  # for what is forked from now on
    first = os.fork()
    if not first:
        for end in (there_is_a_network, connected):
            os.close(end)
        _run_inside(spec, own, say_so, is_connected)
    _libc.setns(here, NEW_PIDS)
    for end in (say_so, is_connected):
        os.close(end)
    try:
        if os.read(there_is_a_network, 1):
            _connect(spec, first)
            (Path(spec.folder) / FIRST_PROCESS).write_text(str(first), encoding="utf-8")
            os.write(connected, b".")
        yield first
    finally:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)


def _run_inside(spec: Spec, own: cgroups.Cgroups, say_so: int, is_connected: int) -> None:
    """Be the first process: set the machine up, then take orders. Never returns."""
    code = 1
    try:
        signal_at_end_of_parent(signal.SIGKILL)
        own.join()
        unshare(NEW_MOUNTS | NEW_CGROUPS | NEW_NAMES | NEW_IPC | NEW_NETWORK)
        os.write(say_so, b".")
        if os.read(is_connected, 1):  # nothing comes where the other end is gone
            _set_up_mounts(Path(spec.folder))
            _set_up_network(spec)
            supervisor.run(None)
            code = 0
    except (OSError, subprocess.CalledProcessError) as error:
        # in the place of an answer to the first order
        sys.stdout.write(json.dumps({"error": f"machine {spec.name}: {_explained(error)}"}) + "\n")
        sys.stdout.flush()
    finally:
        os._exit(code)


def unshare(what: int) -> None:
    """Leave namespaces for new ones. Raises OSError."""
    if _libc.unshare(what):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _connect(spec: Spec, first: int) -> None:
    """Lay a cable from the machine to the bridge, and a route to its pods.

    That of a machine before it goes; the kernel takes it away too, and needs a moment.
    """
    inside = ("nsenter", f"--net=/proc/{spec.network}/ns/net", "ip")
    subprocess.run((*inside, "link", "delete", f"to-{spec.name}"), check=False, capture_output=True)
    try:
        for command in (
            f"link add to-{spec.name} type veth peer name eth0 netns {first}",
            f"link set to-{spec.name} master {spec.bridge} up",
            f"route replace {spec.pods} via {spec.address.partition('/')[0]}",
        ):
            _run(*inside, *command.split())
    except subprocess.CalledProcessError as error:
        raise OSError(_explained(error)) from error


def _set_up_mounts(folder: Path) -> None:
    """Make the file system read-only, but for the machine's own parts of it."""
    _run("mount", "--make-rprivate", "/")
    _run("mount", "--bind", str(folder), str(folder))
    for name, place in ((DISK, "/var/lib"), (LOGS, "/var/log")):
        (folder / name).mkdir(exist_ok=True)
        _run("mount", "--bind", str(folder / name), place)
    _run("mount", "-o", "remount,bind,ro", "/")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    cgroups.mount()
    # a kernel may not say all that a kubelet reads there, and then what is shown is no longer its
    processors = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    _run("mount", "-t", "proc", "proc", "/proc")
    sysctls = {f"sys/{name}": f"{value}\n" for name, value in SYSCTLS.items()}
    files = {f"sys/{BOOT_ID}": f"{uuid.uuid4()}\n", "cpuinfo": processors, **sysctls}
    for name, content in files.items():
        shown = Path("/run/shown", name)
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(content, encoding="utf-8")
        _run("mount", "--bind", str(shown), f"/proc/{name}")
    _run("mount", "--make-rshared", "/")  # what a pod's volumes show follows the node's mounts


def _set_up_network(spec: Spec) -> None:
    _libc.sethostname(spec.name.encode(), len(spec.name))
    for command in (
        "link set lo up",
        f"address add {spec.address} dev eth0",
        "link set eth0 up",
        f"route add default via {spec.gateway}",
    ):
        _run("ip", *command.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="utf-8")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _explained(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{' '.join(map(str, error.cmd))}: {(error.stderr or '').strip()}"
    return str(error)


if __name__ == "__main__":
    main(sys.argv[1:])
