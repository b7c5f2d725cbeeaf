# SPDX-License-Identifier: Apache-2.0
"""When the state file is written and read, and what its last write has."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent import records_file
from agent.gpu_records import GpuRecords
from agent.records_file import GROWING_SECONDS, RecordsFile, restore_from_file
from agent.stored_records import FORMAT, VERSION, Session, StoredGpu, StoredRecords
from base.defects import Defects
from discovery.gpu_part import GpuPart
from discovery.reader.protocol import XidSeen
from exporters.gpuscape.waste import GpuUse
from tests.agent.agent_process import until
from tests.log_lines import log_lines, whys

ENTITY = GpuPart("0000:10:00.0")
BOOT, DRIVER = "proc/sys/kernel/random/boot_id", "sys/module/nvidia/version"
GPU = StoredGpu(bus_id=ENTITY.bus_id, place=0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host that has been started."""
    place(tmp_path, BOOT, "one\n")
    return tmp_path


def place(root: Path, file: str, text: str) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)


def use(records: GpuRecords, at: float) -> None:
    """A pod has the GPU at this second."""
    holder = frozenset({("team", "alice", "main")})
    records.waste.add([GpuUse(entity=ENTITY, at_seconds=at, held_by=holder, busy_ratio=0.5)])


def allocated(file: Path) -> list[float]:
    """Seconds for which each GPU was held, as the file has them."""
    found = FORMAT.decode(file.read_bytes())
    return [] if found is None else [it.allocated for it in found.waste]


def test_the_last_write_has_the_times_that_grew_since_the_one_before(root: Path) -> None:
    file, records = root / "state.json", GpuRecords()
    with RecordsFile(file, root, records).kept(Defects()):
        until(file.exists)
        for at in (0.0, 10.0):
            use(records, at)
    until(lambda: allocated(file) == [10.0])  # where the disk is slow, soon after the block


class Written:
    """A state file, and what was reported of it."""

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path
        self.records = GpuRecords()
        self.reports: list[bool] = []
        self._file = RecordsFile(path, root, self.records, report=self.reports.append)

    def after(self, now: float) -> bool:
        """Whether the file was written anew at this second; it has to be up to date."""
        before = self.path.stat().st_ino if self.path.exists() else None
        assert self._file.write_changed(now, GROWING_SECONDS)
        return self.path.stat().st_ino != before

    def fails(self) -> bool:
        """Whether it cannot be written now."""
        return not self._file.write_changed(0.0, GROWING_SECONDS)


def test_only_what_changed_is_written_and_what_grows_with_each_sample_once_a_minute(
    root: Path,
) -> None:
    written = Written(root, root / "state.json")
    assert written.after(1000.0)
    assert not written.after(1005.0)
    for at in (0.0, 10.0):
        use(written.records, at)
    assert not written.after(1000.0 + GROWING_SECONDS - 1)
    assert written.after(1000.0 + GROWING_SECONDS)
    use(written.records, 20.0)
    assert not written.after(1000.0 + 2 * GROWING_SECONDS - 1)  # the last write began a new minute
    written.records.xids.add(XidSeen(bus_id=ENTITY.bus_id, code=79), 7.0)
    assert written.after(1001.0 + GROWING_SECONDS)
    assert allocated(written.path) == [20.0]
    assert written.path.stat().st_mode & 0o777 == 0o600
    assert written.reports == [True] * 3


def test_a_file_that_cannot_be_written_is_logged_once_until_it_could_be(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = root / "folder"
    written = Written(root, folder / "state.json")
    assert [written.fails(), written.fails()] == [True, True]
    folder.mkdir()
    assert written.after(0.0)
    written.records.xids.add(XidSeen(bus_id=ENTITY.bus_id, code=79), 7.0)
    written.path.unlink()
    folder.rmdir()
    assert written.fails()
    assert written.reports == [False, False, True, False]
    why = f"cannot write {written.path}: No such file or directory"
    facts = {"why": f"{why}: create the folder, or name another place"}
    assert log_lines(caplog) == [("WARNING", "state file not written", facts)] * 2


def test_another_reason_is_logged_too(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = Written(root, root / "folder" / "state.json")
    assert written.fails()
    (root / BOOT).unlink()
    assert written.fails()
    first, second = whys(caplog, "state file not written")
    assert "No such file" in first
    assert "no readable" in second


def test_without_a_boot_id_nothing_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = Written(tmp_path, tmp_path / "state.json")
    assert [written.fails(), written.fails()] == [True, True]
    assert not written.path.exists()
    assert written.reports == [False, False]
    why = f"cannot write {written.path}: the host has no readable {BOOT}"
    assert log_lines(caplog) == [("WARNING", "state file not written", {"why": why})]


@pytest.fixture
def file(root: Path) -> Path:
    place(root, DRIVER, "550.1\n")
    session = Session(boot="one", driver="550.1")
    content = StoredRecords(v=VERSION, session=session, gpus=(GPU,), cleared="all")
    (root / "state.json").write_bytes(FORMAT.encode(content))
    return root / "state.json"


def knows(file: Path, root: Path) -> bool:
    """Whether anything is known from the file."""
    records = GpuRecords()
    restore_from_file(file, root, records, 0.0)
    return records.known_gpus.record.places == {GPU.bus_id: 0}


def test_a_file_of_this_boot_and_driver_is_used_and_logged(
    file: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert knows(file, root)
    fields = {"path": str(file), "gpus": 1}
    assert log_lines(caplog) == [("INFO", "state file read", fields)]


def test_without_a_file_nothing_is_known_and_nothing_logged(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert not knows(root / "none.json", root)
    assert log_lines(caplog) == []


@pytest.mark.parametrize(
    ("changed", "text", "why"),
    [
        ("state.json", '{"v": 2}', " is of another version of gpuscape"),
        ("state.json", "{", "the state file is damaged: "),
    ],
)
def test_another_file_is_not_used_and_the_reason_is_logged(
    file: Path,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    changed: str,
    text: str,
    why: str,
) -> None:
    place(root, changed, text)
    assert not knows(file, root)
    ((level, message, fields),) = log_lines(caplog)
    assert (level, message) == ("WARNING", "state file not used")
    if why.startswith(" "):
        assert fields == {"why": f"{file}{why}"}
    else:
        assert fields["why"].startswith(why)


@pytest.mark.parametrize(
    ("driver", "boot", "why", "known"),
    [
        ("550.1", "two\n", "boot: kept is the number of GPUs, until it is known for this one", 1),
        ("550.1", "", "boot: kept is the number of GPUs, until it is known for this one", 1),
        ("560.2", "one\n", "driver: 560.2; kept is which GPUs the node has", GPU.bus_id),
        (None, "one\n", "driver: none; kept is which GPUs the node has", GPU.bus_id),
    ],
)
def test_of_a_file_of_another_boot_or_driver_only_the_gpus_are_kept(
    file: Path,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    driver: str | None,
    boot: str,
    why: str,
    known: object,
) -> None:
    """Another boot may have other bus ids, another driver has read nothing of them."""
    place(root, BOOT, boot)
    facts = StoredGpu(bus_id=GPU.bus_id, place=0, hung=True, uuid="GPU-a")
    session = Session(boot="one", driver=driver)
    content = StoredRecords(v=VERSION, session=session, gpus=(facts,), cleared="all")
    file.write_bytes(FORMAT.encode(content))
    records = GpuRecords()
    restore_from_file(file, root, records, 0.0)
    record = records.known_gpus.record
    assert (record.gpus, record.hung, records.xids.record.request) == ({}, frozenset(), None)
    assert (record.former or next(iter(record.expected))) == known
    assert record.total == 1
    fields = {"why": f"{file} is of another {why}"}
    assert log_lines(caplog) == [("WARNING", "state file used in part", fields)]


def test_a_file_that_cannot_be_read_is_named_in_the_log(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "state.json").mkdir()
    assert not knows(root / "state.json", root)
    why = f"cannot read the state file {root}/state.json: Is a directory"
    assert log_lines(caplog) == [("WARNING", "state file not used", {"why": why})]


def test_a_file_system_that_hangs_is_given_up_after_a_while_and_named_in_the_log(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it gives later is not used: the agent knows its GPUs by then."""
    returns, has_read = threading.Event(), threading.Event()
    file = root / "state.json"

    def hangs(*_: object, **__: object) -> bytes:
        returns.wait()
        has_read.set()
        session = Session(boot="one", driver=None)
        return FORMAT.encode(StoredRecords(v=VERSION, session=session, gpus=(GPU,)))

    monkeypatch.setattr(records_file, "READ_SECONDS", 0.05)
    monkeypatch.setattr(records_file, "read_bytes", hangs)
    records = GpuRecords()
    restore_from_file(file, root, records, 0.0)
    (why,) = whys(caplog, "state file not used")
    assert why == (
        f"cannot read the state file {file}: no answer within 0.05 s; does its file system hang?"
    )
    returns.set()
    assert has_read.wait(60.0)
    assert records.known_gpus.record.places == {}
