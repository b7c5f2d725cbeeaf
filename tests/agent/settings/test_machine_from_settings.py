# SPDX-License-Identifier: Apache-2.0
"""Which machine is read, through which library and under which name."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from agent.settings.agent_settings import AgentSettings
from agent.settings.machine_from_settings import library_in, place_of, start_of
from base.errors import BadInput
from discovery.host.host_facts import MACHINE_TYPE_FILE
from discovery.reader.protocol import Start
from labelers.label_settings import PluginConfig

LIBRARY = "libnvidia-ml.so.1"


def test_the_library_is_the_first_on_the_search_path(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / LIBRARY).touch()
    path = f":{tmp_path}/none:{tmp_path}/first::{tmp_path}/second:"
    assert library_in(path) == tmp_path / "first" / LIBRARY


@pytest.mark.parametrize("path", ["", ":", "/none:/nowhere"])
def test_a_library_in_no_folder_of_the_path_or_in_the_one_at_hand_is_none(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LIBRARY).touch()
    monkeypatch.chdir(tmp_path)
    assert library_in(path) is None


def test_a_real_machine_is_read_below_the_host_root_by_the_library_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with start_of(AgentSettings()) as start:
        assert start == Start(host_root="/", library=None)
    (tmp_path / LIBRARY).touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with start_of(AgentSettings(host_root=Path("/host"))) as start:
        assert start == Start(host_root="/host", library=str(tmp_path / LIBRARY))
    with start_of(AgentSettings(library=Path("/named.so"))) as start:
        assert start == Start(host_root="/", library="/named.so")


def test_a_simulated_machine_has_a_root_of_its_own_until_the_block_ends() -> None:
    with start_of(AgentSettings(simulate="t4")) as start:
        root, simulation = Path(start.host_root), Path(start.simulation or "")
        assert root.is_dir()
        assert simulation.is_file()
        assert start.library is None
    assert not root.exists()
    assert not simulation.exists()


def test_without_room_for_a_simulation_the_error_names_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(BadInput) as caught, start_of(AgentSettings(simulate="t4")):
        pass
    assert str(caught.value) == (
        "simulate needs a folder to write a few MiB into:"
        f" {os.strerror(errno.ENOENT)}: name one in TMPDIR, or mount an emptyDir at /tmp"
    )


@pytest.mark.parametrize("sign", ["sys/module/nvidia/version", "proc/driver/nvidia/version"])
def test_a_simulation_that_refuses_drivers_does_not_start_where_one_is_loaded(
    tmp_path: Path, sign: str
) -> None:
    settings = AgentSettings(simulate="t4", host_root=tmp_path, refuse_driver=True)
    with start_of(settings):
        pass
    (tmp_path / sign).parent.mkdir(parents=True)
    (tmp_path / sign).touch()

    with pytest.raises(BadInput, match="an NVIDIA driver is loaded here"), start_of(settings):
        pass
    with start_of(replace(settings, refuse_driver=False)):
        pass


def test_refusing_drivers_makes_no_sense_on_a_real_machine() -> None:
    with pytest.raises(BadInput, match="refuse-driver is for simulated machines"):
        AgentSettings(refuse_driver=True)


def test_the_host_is_named_by_the_settings_else_by_itself() -> None:
    start = Start(host_root="/host")
    place = place_of(AgentSettings(node_name="node-a"), PluginConfig(), start)
    assert (place.root, place.name) == (Path("/host"), "node-a")
    assert place.machine_type_file == MACHINE_TYPE_FILE
    assert place_of(AgentSettings(), PluginConfig(), start).name == socket.gethostname().lower()


@pytest.mark.parametrize("settings", [AgentSettings(), AgentSettings(node_name="GPU-Node-1.lan")])
def test_a_host_with_capitals_has_the_node_that_its_kubelet_registers(
    monkeypatch: pytest.MonkeyPatch, settings: AgentSettings
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "GPU-Node-1.lan")
    assert place_of(settings, PluginConfig(), Start(host_root="/")).name == "gpu-node-1.lan"


def test_the_machine_type_is_in_the_file_of_the_settings_else_of_the_device_plugin() -> None:
    plugin, start = PluginConfig(machine_type_file="/etc/plugin"), Start(host_root="/")
    assert place_of(AgentSettings(), plugin, start).machine_type_file == "/etc/plugin"
    settings = AgentSettings(machine_type_file=Path("/etc/agent"))
    assert place_of(settings, plugin, start).machine_type_file == "/etc/agent"
