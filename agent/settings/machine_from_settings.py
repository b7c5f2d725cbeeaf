# SPDX-License-Identifier: Apache-2.0
"""The machine that the settings select: real or simulated, and its name."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agent.settings.agent_settings import AgentSettings
from agent.settings.labels_from_settings import machine_type_file
from api import names
from base.errors import BadInput
from discovery.node_host import NodeHost
from discovery.reader.protocol import Start
from labelers.label_settings import PluginConfig


@contextlib.contextmanager
def start_of(settings: AgentSettings) -> Iterator[Start]:
    """Start parameters of the device reader; a simulation of the settings ends with the block.

    Raises BadInput for an unknown machine, a damaged file, where there is no room for it, and
    where a driver is loaded although none may be.
    """
    if settings.simulate is None:
        library = settings.library or library_in(os.environ.get("LD_LIBRARY_PATH", ""))
        yield Start(
            host_root=str(settings.host_root), library=None if library is None else str(library)
        )
        return
    if settings.refuse_driver and (sign := loaded_driver(settings.host_root)):
        raise BadInput(
            f"simulate: an NVIDIA driver is loaded here ({sign}), and refuse-driver is set: keep"
            " the simulated agent off this node, or run the real one on it"
        )
    from simulator.simulation import simulate  # never loaded on real hardware

    with contextlib.ExitStack() as ending:
        try:
            folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="gpuscape-"))
            simulation = simulate(settings.simulate, Path(folder))
        except OSError as error:
            raise BadInput(
                f"simulate needs a folder to write a few MiB into: {error.strerror or error}:"
                " name one in TMPDIR, or mount an emptyDir at /tmp"
            ) from error
        yield Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))


def loaded_driver(root: Path) -> Path | None:
    """The file or folder that shows that NVIDIA's kernel module is loaded, if it is.

    A container sees both, whatever its runtime put into it: the kernel is the host's.
    """
    signs = (root / "sys/module/nvidia", root / "proc/driver/nvidia/version")
    return next((sign for sign in signs if sign.exists()), None)


def library_in(search_path: str) -> Path | None:
    """The driver's library on a search path such as LD_LIBRARY_PATH, if it is there.

    The device reader has an empty environment, so its loader would not search there.
    """
    candidates = (Path(folder) / "libnvidia-ml.so.1" for folder in search_path.split(":") if folder)
    return next((file for file in candidates if file.exists()), None)


def place_of(settings: AgentSettings, plugin: PluginConfig, start: Start) -> NodeHost:
    """The host whose facts are read, with the node's name."""
    return NodeHost(
        root=Path(start.host_root),
        name=names.kubelet_node_name(settings.node_name or socket.gethostname()),
        machine_type_file=machine_type_file(settings, plugin),
    )
