# SPDX-License-Identifier: Apache-2.0
"""A container runtime that gives containers a node's GPUs, as NVIDIA's does, then runs runc.

    python -IS injecting_runtime.py GPUS RUNC ARGUMENT...

GPUS is the folder of :mod:`tests.node.node_gpus`. As with NVIDIA's runtime a container asks with
the variable NVIDIA_VISIBLE_DEVICES, gets the driver's library, and a hook in its mount namespace
does the rest. It also gets what a kernel with that driver shows to every container: /sys with the
GPUs, /proc/driver, and the machine's boot id. A script of its own: it runs at every order to runc.
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
BOOT_ID = "proc/sys/kernel/random/boot_id"
LIBRARIES = "/usr/local/nvidia/lib64"
"""Where the library is in a container. The real runtime puts it on the loader's own path and
makes the loader's cache anew, here a variable leads to it; the folder has the library's socket."""


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
    variables = dict(it.split("=", 1) for it in spec["process"].get("env", ()))
    return variables.get(ASKS, "") not in REFUSES


def inject(spec: dict[str, Any], driver: Path, root: Path) -> None:
    """Add the driver to it; ``root`` will be the container's file system."""
    spec["process"]["env"].append(f"LD_LIBRARY_PATH={LIBRARIES}")
    mounts = [it for it in spec["mounts"] if it["destination"] != "/sys"]
    bound = ["rbind", "ro", "nosuid", "nodev"]
    for at, source in (("/sys", driver / "sys"), (LIBRARIES, driver / "usr/lib64")):
        mounts.append({"destination": at, "type": "bind", "source": str(source), "options": bound})
    # what lies below /sys comes after it
    spec["mounts"] = sorted(mounts, key=lambda it: it["destination"].startswith("/sys/"))
    hooks = spec.setdefault("hooks", {}).setdefault("createContainer", [])
    for source, at in ((driver / "proc/driver", "proc/driver"), (Path("/", BOOT_ID), BOOT_ID)):
        mount = ["mount", "--bind", str(source), str(root / at)]
        hooks.append({"path": shutil.which("mount"), "args": mount, "env": ["PATH=/usr/bin:/bin"]})


if __name__ == "__main__":
    main(*sys.argv[1:])
