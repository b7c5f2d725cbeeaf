# SPDX-License-Identifier: Apache-2.0
"""The server answers the library of its own version, and believes nothing that anybody sends."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pynvml as nv
import pytest

from base.errors import BadInput
from simulator.clibrary import call_format
from simulator.clibrary.c_source import digest
from simulator.clibrary.exports import exports
from simulator.clibrary.machine_server import MachineServer
from tests import machines
from tests.agent.agent_process import SOON
from tests.simulator.clibrary.serving import CODE_OF, NAMES, Serve, Served


@pytest.fixture
def served(tmp_path: Path, serve: Serve) -> Served:
    """Two GPUs, served."""
    return serve(machines.simulation(tmp_path / "machine"))


def test_a_library_of_another_version_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls would be misread."""
    monkeypatch.setattr("simulator.clibrary.machine_server.digest", lambda: "0" * len(digest()))

    done = served.run(CODE_OF + "print(code_of(nv.nvmlInit))")

    assert done.stdout.strip() == str(nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH)


def _number(value: int) -> bytes:
    return value.to_bytes(4, sys.byteorder)


def _call(name: str, words: list[int], *pieces: bytes) -> bytes:
    number = next(at for at, export in enumerate(exports()) if export.name == name)
    body = _number(number) + b"".join(word.to_bytes(8, sys.byteorder) for word in words)
    return body + b"".join(_number(len(piece)) + piece for piece in pieces)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        _number(100_000),
        _call("nvmlDeviceGetName", [0x7E0000]),
        _call("nvmlDeviceGetName", [0x7E0000, 1, 96], b"a" * 10),
        _call("nvmlDeviceGetName", [0x7E0000, 1, 96]) + _number(96) + b"a",
        _call("nvmlDeviceGetPciInfo_v3", [0x7E0000, 1], b"a"),
        _call("nvmlDeviceGetMemoryInfo_v2", [0x7E0000, 1], b"ab"),
        _call("nvmlDeviceGetMemoryInfo_v2", [0x7E0000, 1], _number(nv.nvmlMemory_v2)),
        _call("nvmlDeviceGetComputeRunningProcesses_v3", [0x7E0000, 1, 1], _number(9), b"ab"),
        _call("nvmlGpmMetricsGet", [1], b"ab"),
        b"a" * 1000,
    ],
    ids=range(11),
)
def test_bytes_that_are_no_call_end_their_connection_alone(served: Served, body: bytes) -> None:
    """No length is believed that does not follow from the table: memory would be overwritten."""
    with socket.socket(socket.AF_UNIX) as rogue:
        rogue.settimeout(SOON)
        folder = os.open(served.folder, os.O_PATH)
        rogue.connect(f"/proc/self/fd/{folder}/{call_format.SOCKET_NAME}")
        os.close(folder)
        rogue.sendall(digest().encode() + bytes(call_format.NONCE_BYTES))
        assert rogue.recv(1) == b"\1"

        rogue.sendall(_number(len(body)) + body)

        assert rogue.recv(100) == b""
    assert "NVIDIA Small" in served.run(NAMES).stdout


def test_a_machine_has_one_server(served: Served) -> None:
    """A second one would take the first one's callers."""
    with pytest.raises(BadInput, match="another process serves the machine"):
        MachineServer(served.simulation, served.folder)

    assert "NVIDIA Small" in served.run(NAMES).stdout
