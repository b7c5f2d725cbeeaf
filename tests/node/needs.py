# SPDX-License-Identifier: Apache-2.0
"""What a machine must allow for real nodes to run on it, found out by trying."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from typing import Final

from tests.controlplane.builds import NotPreparedError
from tests.node.cgroups import Cgroups, lacking

PROGRAMS: Final = ("ip", "mount", "nsenter", "unshare")
"""Of iproute2, mount and util-linux."""

_TRY: Final = """
mount -t tmpfs tmpfs /mnt && mkdir /mnt/lower /mnt/upper /mnt/work /mnt/all &&
mount -t overlay overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work /mnt/all &&
ip link add one type veth peer name other && ip link add bridge type bridge
"""
_TRIED_IN: Final = ("unshare", "--mount", "--net", "--pid", "--fork", "--cgroup", "--ipc", "--uts")


def demand() -> None:
    """Raise NotPreparedError, with the reason, where this machine can have no real node."""
    if reason := why_not():
        raise NotPreparedError(f"no real node can run here: {reason}")


@cache
def why_not() -> str:
    """What is missing, in words; empty where nothing is."""
    if os.geteuid():
        return "that takes root"
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"no program {', '.join(missing)}"
    if controllers := lacking():
        names = ", ".join(sorted(controllers))
        return f"no cgroups with {names}"
    if problem := _cgroups_problem():
        return problem
    tried = subprocess.run(
        [*_TRIED_IN, "sh", "-c", _TRY], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        return f"namespaces: {(tried.stderr.strip() or 'unshare failed').splitlines()[-1]}"
    return ""


def _cgroups_problem() -> str:
    """Why a machine's cgroups cannot be made, such as in a container that has its own version 2."""
    try:
        Cgroups.create().remove()
    except OSError as error:
        return f"cgroups cannot be made ({error.strerror}): run the tests outside of a container"
    return ""
