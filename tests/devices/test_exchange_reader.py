# SPDX-License-Identifier: Apache-2.0
"""The last good file of this boot counts, and none that another could have written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from devices.exchange_reader import ExchangeReader, ExchangeState
from tests.devices.exchange_files import BOOT, OTHER_BOOT, document, gpu_entry, gpu_uuid, text

NAME = "devices.json"
ME = os.geteuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    exchange = tmp_path / "exchange"
    exchange.mkdir(mode=0o700)
    return exchange


def put(folder: Path, data: bytes) -> None:
    """Replace the file as the agent does."""
    new = folder / ".new"
    new.write_bytes(data)
    new.chmod(0o600)
    new.replace(folder / NAME)


def reader(folder: Path, owner: int = ME, wall: Callable[[], float] = lambda: 0) -> ExchangeReader:
    return ExchangeReader(folder, BOOT, owner=owner, wall=wall)


def test_a_good_file_is_read(folder: Path) -> None:
    put(folder, text(document()))
    reading = reader(folder).read(10.0)
    assert (reading.state, reading.why) == (ExchangeState.GOOD, "")
    assert reading.exchange is not None
    assert [gpu.uuid for gpu in reading.exchange.gpus] == [gpu_uuid(0), gpu_uuid(1)]


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (b"{", ExchangeState.DAMAGED),
        (b"[" * (1 << 20), ExchangeState.DAMAGED),
        (text(document(gpu_entry(uuid="/dev/mem"))), ExchangeState.DAMAGED),
        (text(document(v=2)), ExchangeState.OTHER_VERSION),
        (text(document(boot_id=OTHER_BOOT)), ExchangeState.OTHER_BOOT),
    ],
)
def test_a_file_that_cannot_be_used_leaves_the_last_good_one(
    folder: Path, data: bytes, state: ExchangeState
) -> None:
    put(folder, text(document()))
    following = reader(folder)
    good = following.read(0.0).exchange
    put(folder, data)
    reading = following.read(5.0)
    assert (reading.state, reading.exchange, reading.age_seconds) == (state, good, 5.0)
    assert reading.why
    fresh = reader(folder).read(5.0)
    assert (fresh.state, fresh.exchange, fresh.age_seconds) == (state, None, None)


def test_the_age_grows_until_the_file_is_written_anew(folder: Path) -> None:
    put(folder, text(document()))
    following = reader(folder)
    assert [following.read(now).age_seconds for now in (100.0, 130.0)] == [0.0, 30.0]
    put(folder, text(document(reading=8)))
    assert following.read(140.0).age_seconds == 0.0
    (folder / NAME).unlink()
    reading = following.read(150.0)
    assert (reading.state, reading.age_seconds) == (ExchangeState.MISSING, 10.0)
    assert reading.exchange is not None


def test_a_file_from_before_the_reader_has_its_own_age(folder: Path) -> None:
    put(folder, text(document()))
    os.utime(folder / NAME, (1000.0, 1000.0))
    following = reader(folder, wall=lambda: 1300.0)
    assert [following.read(now).age_seconds for now in (5.0, 15.0)] == [300.0, 310.0]


def test_a_link_a_pipe_and_a_folder_in_the_files_place_are_not_read(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_bytes(text(document()))
    elsewhere.chmod(0o600)
    for make in (
        lambda path: path.symlink_to(elsewhere),
        os.mkfifo,
        lambda path: path.mkdir(),
    ):
        make(folder / NAME)
        reading = reader(folder).read(0.0)
        assert (reading.state, reading.exchange) == (ExchangeState.FOREIGN, None)
        (folder / NAME).rename(folder.parent / f"old-{os.urandom(4).hex()}")


def test_a_link_in_the_folders_place_is_not_followed(folder: Path) -> None:
    put(folder, text(document()))
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert reader(link).read(0.0).state is ExchangeState.FOREIGN


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_or_a_file_that_others_may_write_is_not_read(folder: Path, mode: int) -> None:
    put(folder, text(document()))
    folder.chmod(mode)
    assert reader(folder).read(0.0).state is ExchangeState.FOREIGN
    folder.chmod(0o700)
    (folder / NAME).chmod(mode)
    assert reader(folder).read(0.0).state is ExchangeState.FOREIGN
    (folder / NAME).chmod(0o600)
    assert reader(folder).read(0.0).state is ExchangeState.GOOD


def test_a_file_of_another_user_is_not_read(folder: Path) -> None:
    put(folder, text(document()))
    assert reader(folder, owner=ME + 1).read(0.0).state is ExchangeState.FOREIGN


@pytest.mark.skipif(ME != 0, reason="only root gives files to others")
def test_a_file_of_another_user_in_our_folder_is_not_read(folder: Path) -> None:
    put(folder, text(document()))
    os.chown(folder / NAME, 65534, 65534)
    assert reader(folder).read(0.0).state is ExchangeState.FOREIGN
