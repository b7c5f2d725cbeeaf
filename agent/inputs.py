"""What the settings point at: the machine to read, the device plugin's file, the labels asked for."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agent.config import Settings
from discovery.errors import BadInput
from discovery.host import MACHINE_TYPE_FILE
from discovery.node import Place
from discovery.protocol import Start
from labelers.plugin_config import PluginConfig, parse
from labelers.settings import LabelSettings, MigStrategy


@contextlib.contextmanager
def start_of(settings: Settings) -> Iterator[Start]:
    """What to tell the device reader; a simulation that is asked for lives until the block ends.

    Raises BadInput for an unknown machine or a damaged file.
    """
    if settings.simulate is None:
        library = None if settings.library is None else str(settings.library)
        yield Start(host_root=str(settings.host_root), library=library)
        return
    from discovery.simulator.simulation import simulate  # never loaded on real hardware

    with tempfile.TemporaryDirectory(prefix="gpuscape-") as directory:
        simulation = simulate(settings.simulate, Path(directory))
        yield Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))


def place_of(settings: Settings, plugin: PluginConfig, start: Start) -> Place:
    """Where the host's facts are read, and under which name."""
    file = settings.machine_type_file or plugin.machine_type_file or MACHINE_TYPE_FILE
    name = settings.node_name or socket.gethostname()
    return Place(root=Path(start.host_root), name=name, machine_type_file=str(file))


def plugin_config(settings: Settings) -> PluginConfig:
    """What the device plugin's configuration file says of labels. Raises BadInput."""
    path = settings.sharing_config
    if path is None:
        return PluginConfig()
    try:
        return parse(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"sharing-config: cannot read {path}: {why}") from error


def label_settings(settings: Settings, plugin: PluginConfig, started: float) -> LabelSettings:
    """The labelers' settings; what was given to the agent wins over the plugin's file.

    ``started`` is Unix seconds: the timestamp label tells when the process started.
    """
    strategy = settings.mig_strategy or plugin.mig_strategy or MigStrategy.NONE
    stamped = settings.timestamp if settings.timestamp is not None else not plugin.no_timestamp
    return LabelSettings(
        mig_strategy=MigStrategy(strategy),
        sharing=plugin.sharing,
        timestamp_seconds=int(started) if stamped else None,
    )
