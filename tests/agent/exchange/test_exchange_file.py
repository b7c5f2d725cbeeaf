# SPDX-License-Identifier: Apache-2.0
"""When the file for ``gpuscape devices`` is written, with which numbers, and what stops it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.exchange.exchange_file import HEARTBEAT_SECONDS, RETRY_SECONDS, ExchangeFile
from base.defects import Defects
from discovery.model import GpuState, NodeSnapshot
from tests import build
from tests.agent.agent_process import until
from tests.devices.exchange_files import BOOT, OTHER_BOOT
from tests.log_lines import whys

ONE, TWO = build.node([build.gpu(0)]), build.node([build.gpu(0), build.gpu(1)])
BOOT_FILE = "proc/sys/kernel/random/boot_id"


def boot(root: Path, boot_id: str = BOOT) -> None:
    (root / BOOT_FILE).parent.mkdir(parents=True, exist_ok=True)
    (root / BOOT_FILE).write_text(f"{boot_id}\n")


class Scene:
    """A folder on a host, and the agent's side of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "exchange"
        self.reports: list[bool] = []
        self.file = self.started()

    def started(self) -> ExchangeFile:
        """Another agent of the same host."""
        return ExchangeFile(
            self.folder, self.root, report=self.reports.append, wall=lambda: 1_000_000_000.0
        )

    def at(self, now: float, snapshot: NodeSnapshot | None = None) -> float | None:
        if snapshot is not None:
            self.file.show(snapshot)
        return self.file.write_due(now)

    @property
    def content(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.folder / "devices.json").read_bytes())
        return read

    @property
    def numbers(self) -> tuple[int, int]:
        """Generation and reading."""
        return self.content["generation"], self.content["reading"]

    @property
    def inode(self) -> int:
        return (self.folder / "devices.json").stat().st_ino


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    boot(tmp_path)
    return Scene(tmp_path)


def test_nothing_is_written_before_a_snapshot(scene: Scene) -> None:
    assert scene.at(0.0) is None
    assert not scene.folder.exists()


def test_the_first_snapshot_is_written_for_this_user_alone(scene: Scene) -> None:
    assert scene.at(0.0, ONE) == HEARTBEAT_SECONDS
    assert scene.numbers == (1, 1)
    assert (scene.content["boot_id"], scene.content["written_at"]) == (BOOT, "2001-09-09T01:46:40Z")
    assert [gpu["uuid"] for gpu in scene.content["gpus"]] == [build.gpu(0).uuid]
    assert scene.reports == [True]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (scene.folder, *scene.folder.iterdir())]
    assert modes == [0o700, 0o600]


def test_an_equal_snapshot_is_written_with_the_heartbeat_alone(scene: Scene) -> None:
    scene.at(0.0, ONE)
    before = scene.inode
    assert scene.at(20.0, ONE) == HEARTBEAT_SECONDS - 20.0
    assert scene.inode == before
    assert scene.at(HEARTBEAT_SECONDS, ONE) == HEARTBEAT_SECONDS
    assert scene.inode != before
    assert scene.numbers == (1, 3)


def test_a_change_is_written_at_once_with_the_next_generation(scene: Scene) -> None:
    scene.at(0.0, ONE)
    scene.at(1.0, TWO)
    assert scene.numbers == (2, 2)
    scene.at(2.0, ONE)
    assert scene.numbers == (3, 3)


def test_the_next_agent_of_this_boot_goes_on_and_that_of_another_begins_anew(scene: Scene) -> None:
    scene.at(0.0, ONE)
    scene.at(1.0, TWO)
    scene.file = scene.started()
    scene.at(0.0, TWO)
    assert scene.numbers == (2, 3)
    boot(scene.root, OTHER_BOOT)
    scene.file = scene.started()
    scene.at(0.0, TWO)
    assert scene.numbers == (1, 1)
    assert scene.content["boot_id"] == OTHER_BOOT


@pytest.mark.parametrize("data", [b"{", b"[" * (1 << 20), b'{"v":2}'])
def test_a_damaged_file_is_written_anew(scene: Scene, data: bytes) -> None:
    scene.folder.mkdir()
    (scene.folder / "devices.json").write_bytes(data)
    scene.at(0.0, ONE)
    assert scene.numbers == (1, 1)


def test_a_snapshot_that_says_too_little_leaves_the_devices_as_they_were(scene: Scene) -> None:
    scene.at(0.0, TWO)
    waiting = build.node([build.gpu(0, state=GpuState.INITIALISING), build.gpu(1)])
    scene.at(1.0, waiting)
    scene.at(HEARTBEAT_SECONDS, waiting)
    assert scene.numbers == (1, 1)
    assert len(scene.content["gpus"]) == 2


def test_a_failed_write_leaves_the_old_file_and_is_tried_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.at(0.0, ONE)
    scene.folder.rename(scene.root / "away")
    scene.folder.symlink_to(scene.root / "away")
    assert scene.at(1.0, TWO) == RETRY_SECONDS
    assert scene.at(2.0) == RETRY_SECONDS
    assert scene.numbers == (1, 1)
    assert len(whys(caplog, "device exchange not written")) == 1
    scene.folder.unlink()
    (scene.root / "away").rename(scene.folder)
    assert scene.at(11.0) == HEARTBEAT_SECONDS
    assert scene.numbers == (2, 2)
    assert scene.reports == [True, False, False, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to others")
def test_a_folder_of_another_user_is_not_written(scene: Scene) -> None:
    scene.folder.mkdir()
    os.chown(scene.folder, 65534, 65534)
    assert scene.at(0.0, ONE) == RETRY_SECONDS
    assert not list(scene.folder.iterdir())


def test_a_folder_that_others_may_enter_is_closed(scene: Scene) -> None:
    scene.folder.mkdir()
    scene.folder.chmod(0o777)
    scene.at(0.0, ONE)
    assert stat.S_IMODE(scene.folder.stat().st_mode) == 0o700


def test_a_link_in_the_files_place_is_replaced_and_not_followed(scene: Scene) -> None:
    target = scene.root / "target"
    target.write_text("kept")
    scene.folder.mkdir()
    (scene.folder / "devices.json").symlink_to(target)
    scene.at(0.0, ONE)
    assert target.read_text() == "kept"
    assert not (scene.folder / "devices.json").is_symlink()


def test_without_a_boot_id_nothing_is_written(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    (scene.root / BOOT_FILE).unlink()
    assert scene.at(0.0, ONE) == RETRY_SECONDS
    assert whys(caplog, "device exchange not written") == ["the host has no readable boot id"]


def test_a_gpu_that_is_left_out_is_logged_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    odd = build.node([build.gpu(0), build.gpu(1, uuid="/dev/mem")])
    scene.at(0.0, odd)
    scene.at(1.0, odd)
    assert len(whys(caplog, "GPU left out of the device exchange")) == 1
    assert len(scene.content["gpus"]) == 1


def test_the_thread_writes_each_change(scene: Scene) -> None:
    with scene.file.kept(Defects()):
        scene.file.show(ONE)
        until(lambda: (scene.folder / "devices.json").exists())
        scene.file.show(TWO)
        until(lambda: len(scene.content["gpus"]) == 2)
