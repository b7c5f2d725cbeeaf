# SPDX-License-Identifier: Apache-2.0
"""A container runtime that gives containers a node's GPUs, as NVIDIA's does, then runs runc.

    python -IS injecting_runtime.py GPUS RUNC ARGUMENT...

GPUS is the folder of :mod:`tests.node.node_gpus`. As with NVIDIA's runtime a container asks with
the variable NVIDIA_VISIBLE_DEVICES, gets the driver's library, and a hook in its mount namespace
does the rest. Who asks for all GPUs gets their device files, which are plain ones here. It also
gets what a kernel with that driver shows to every container: /sys with the GPUs, /proc/driver, and
the machine's boot id. A script of its own: it runs at every order to runc.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ASKS = "NVIDIA_VISIBLE_DEVICES"
REFUSES = ("", "void")
"""With these values a container gets nothing. Source: NVIDIA's container toolkit."""
ALL = "all"
BOOT_ID = "proc/sys/kernel/random/boot_id"
LIBRARIES = "/usr/local/nvidia/lib64"
"""Where the library is in a container; the folder has its socket, too. It goes into the loader's
cache, as by NVIDIA's hook: a variable would not be there for what is started by ``kubectl exec``,
which has the variables of the pod alone."""
LDCONFIG = "/sbin/ldconfig"


def main(gpus: str, runc: str, *arguments: str) -> None:
    """Change the bundle of a container that is created, and become runc."""
    driver = Path(gpus, "root")
    if "create" in arguments and driver.exists():
        bundle = Path(arguments[arguments.index("--bundle") + 1])
        config = bundle / "config.json"
        spec = json.loads(config.read_text())
        if asks(spec):
            inject(spec, driver, bundle / spec["root"]["path"])
            config.write_text(json.dumps(spec))
    os.execv(runc, [runc, *arguments])  # noqa: S606  # it is to become runc


def asks(spec: dict[str, Any]) -> bool:
    """Whether a container of the runtime specification wants GPUs."""
    return asked(spec) not in REFUSES


def asked(spec: dict[str, Any]) -> str:
    """The GPUs that it names; empty for none."""
    variables = dict(it.split("=", 1) for it in spec["process"].get("env", ()))
    return str(variables.get(ASKS, ""))


def inject(spec: dict[str, Any], driver: Path, root: Path) -> None:
    """Add the driver to it; ``root`` will be the container's file system."""
    mounts = [it for it in spec["mounts"] if it["destination"] != "/sys"]
    bound = ["rbind", "nosuid", "nodev"]
    for at, source in (("/sys", driver / "sys"), (LIBRARIES, driver / "usr/lib64")):
        mounts.append(_bind(at, source, *bound, "ro"))
    if asked(spec) == ALL:
        files = sorted((driver / "dev").glob("nvidia*"))
        mounts += [_bind(f"/dev/{it.name}", it, *bound) for it in files if it.is_file()]
    # what lies below /sys comes after it
    spec["mounts"] = sorted(mounts, key=lambda it: it["destination"].startswith("/sys/"))
    hooks = spec.setdefault("hooks", {}).setdefault("createContainer", [])
    for source, at in ((driver / "proc/driver", "proc/driver"), (Path("/", BOOT_ID), BOOT_ID)):
        mount = ["mount", "--bind", str(source), str(root / at)]
        hooks.append({"path": shutil.which("mount"), "args": mount, "env": ["PATH=/usr/bin:/bin"]})
    (root / "etc").mkdir(exist_ok=True)  # for the cache
    hooks.append({"path": LDCONFIG, "args": ["ldconfig", "-X", "-r", str(root), LIBRARIES]})


def _bind(at: str, source: Path, *options: str) -> dict[str, Any]:
    return {"destination": at, "type": "bind", "source": str(source), "options": options}


if __name__ == "__main__":
    main(*sys.argv[1:])
