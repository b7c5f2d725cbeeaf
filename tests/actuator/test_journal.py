# SPDX-License-Identifier: Apache-2.0
"""The journal keeps what it was given, and trusts nothing that others could have put there."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actuator.change_record import MOST_PAST, ChangeRecord, Direction, RecordedChanges
from actuator.journal import (
    CHANGE,
    FORMER_FILES,
    LOCK,
    PAST,
    SEEN,
    Journal,
    JournalBusy,
    JournalUnusable,
    abandon_lock,
)
from api.mig_outcome import Outcome
from mig.gpu_layout import DesiredInstance, GpuLayout, layout_from_counts
from tests.log_lines import log_lines

PLACED = GpuLayout(mig=True, instances=(DesiredInstance("3g.20gb", (2, 1), 4),))
RECORD = ChangeRecord(
    change="c-1",
    origin="all-1g.5gb",
    started="2026-11-23T10:00:00Z",
    boot="boot-1",
    gpu="GPU-0",
    index=0,
    bus_id="0000:10:00.0",
    desired=layout_from_counts({"1g.5gb": 7}),
    previous=PLACED,
)
OTHER = msgspec.structs.replace(RECORD, gpu="GPU-1", index=1, bus_id="0000:16:00.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a journal may be."""
    return tmp_path / "mig"


def test_what_was_written_is_read_by_the_next(folder: Path) -> None:
    """All of it."""
    with Journal(folder) as journal:
        journal.write(RECORD)

    with Journal(folder) as journal:
        assert journal.content().unended == (RECORD,)


def test_each_gpu_has_an_entry_of_its_own(folder: Path) -> None:
    """One ends, and the other stays as it is."""
    ended = msgspec.structs.replace(RECORD, outcome=Outcome.APPLIED)
    with Journal(folder) as journal:
        journal.write(RECORD, OTHER)
        journal.end(ended)

        content = journal.content()
        assert content == RecordedChanges((OTHER,), (ended,))
        assert content.of("c-1") == (ended, OTHER)
        journal.need_no_change(["GPU-0"])
        with pytest.raises(JournalUnusable, match="has not ended on GPU GPU-1"):
            journal.need_no_change(["GPU-0", "GPU-1"])


def test_the_newest_entry_of_a_gpu_counts(folder: Path) -> None:
    """It replaces the one before."""
    back = msgspec.structs.replace(RECORD, direction=Direction.BACK, reason="why")
    with Journal(folder) as journal:
        journal.write(RECORD)
        journal.write(back)

        assert journal.content().unended == (back,)


def test_an_ended_change_is_in_the_history_alone(folder: Path) -> None:
    """And once, however often a process dies while it ends it."""
    ended = msgspec.structs.replace(RECORD, outcome=Outcome.APPLIED)
    with Journal(folder) as journal:
        journal.write(RECORD)
        journal.end(ended)
        journal.write(RECORD)
        journal.end(ended)

        assert journal.content() == RecordedChanges((), (ended,))


def test_the_history_keeps_the_newest(folder: Path) -> None:
    """It does not grow for ever."""
    with Journal(folder) as journal:
        for number in range(MOST_PAST + 5):
            for record in (RECORD, OTHER):
                journal.end(msgspec.structs.replace(record, change=f"c-{number}"))

        assert [(one.change, one.gpu) for one in journal.content().ended] == [
            (f"c-{number}", gpu) for number in range(5, MOST_PAST + 5) for gpu in ("GPU-0", "GPU-1")
        ]


def test_it_is_opened_once_at_a_time(folder: Path) -> None:
    """And nothing of a try that was refused stays open."""
    with Journal(folder):
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(JournalBusy, match="another process changes MIG on this node"):
            Journal(folder)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_one_process_has_it(folder: Path) -> None:
    """The agent, its actuator and a person's command share it."""
    code = "import sys; from pathlib import Path; from actuator.journal import Journal\n"
    code += "Journal(Path(sys.argv[1]))"
    with Journal(folder):
        other = subprocess.run(
            [sys.executable, "-c", code, folder], capture_output=True, text=True, check=False
        )

    assert "another process changes MIG" in other.stderr
    Journal(folder).close()


def _damage(content: bytes) -> Callable[[Path], None]:
    return lambda file: _put(file, content)


def _put(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def _link(file: Path) -> None:
    target = file.with_name("elsewhere")
    file.rename(target)
    file.symlink_to(target)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _changed(**keys: object) -> Callable[[Path], None]:
    return lambda file: _put(file, json.dumps(json.loads(file.read_text()) | keys).encode())


def _entry(**keys: object) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        stored = json.loads(file.read_text())
        stored["changes"][0] |= keys
        _put(file, json.dumps(stored).encode())

    return change


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (_damage(b""), "damaged"),
        (_damage(b'{"v":2'), "damaged"),
        (_damage(b"\xff\xfe"), "damaged"),
        (_damage(b"[" * 100_000), "damaged"),
        (_damage(b" " * (1 << 21)), "damaged"),
        (_changed(v=1), "another version"),
        (_entry(desired={}), "damaged"),
        (_entry(gpu=None), "damaged"),
        (_entry(previous={"mig": True, "instances": [["3g.20gb", [3]]]}), "damaged"),
        (_entry(previous={"mig": False}, direction="sideways"), "damaged"),
        (_damage(b'{"v":2,"change":"c-1","desired":{},"previous":{}}'), "damaged"),
        (_link, "a link"),
        (_pipe, "not a regular file"),
        (_folder, "another file is in its place"),
    ],
)
def test_what_cannot_be_trusted_is_not_guessed(
    folder: Path, how: Callable[[Path], None], why: str
) -> None:
    """Nothing is changed on the word of such a file."""
    with Journal(folder) as journal:
        journal.write(RECORD)
    how(folder / CHANGE)

    with Journal(folder) as journal, pytest.raises(JournalUnusable, match=why) as refused:
        journal.content()

    assert str(refused.value).startswith(f"{folder / CHANGE}: ")


def test_a_layout_before_needs_places(folder: Path) -> None:
    """Without them a way back would make other devices."""
    with Journal(folder) as journal:
        journal.write(msgspec.structs.replace(RECORD, previous=RECORD.desired))

        with pytest.raises(JournalUnusable, match="no place"):
            journal.content()


@pytest.mark.parametrize("name", [CHANGE, PAST])
def test_a_link_where_a_file_is_written_leads_nowhere(folder: Path, name: str) -> None:
    """What it points to stays as it is."""
    victim = folder.parent / "victim"
    victim.write_text("precious")
    folder.mkdir(mode=0o700)
    (folder / f".{name}.new").symlink_to(victim)

    with Journal(folder) as journal:
        journal.write(RECORD)
        journal.end(RECORD)

    assert victim.read_text() == "precious"


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_may_write_to_is_refused(folder: Path, mode: int) -> None:
    """They would decide what is rolled back to."""
    folder.mkdir()
    folder.chmod(mode)

    with pytest.raises(JournalUnusable, match="chmod"):
        Journal(folder)


def test_a_folder_that_is_a_link_is_refused(folder: Path) -> None:
    """Wherever it leads."""
    (folder.parent / "real").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "real")

    with pytest.raises(JournalUnusable, match="a link"):
        Journal(folder)


def test_a_lock_that_is_a_link_is_refused(folder: Path) -> None:
    """Two processes could lock two files."""
    folder.mkdir(mode=0o700)
    (folder / LOCK).symlink_to(folder.parent / "other-lock")

    with pytest.raises(JournalUnusable, match="a link"):
        Journal(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    """Its owner may write to it."""
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)

    with pytest.raises(JournalUnusable, match="another user, 65534"):
        Journal(folder)


def test_a_disk_without_room_leaves_the_old_record(folder: Path) -> None:
    """Whole, and no half new one beside it. The limit on a file's size stands for a full disk."""
    with Journal(folder) as journal:
        journal.write(RECORD)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
        try:
            with pytest.raises(JournalUnusable, match=f"cannot write {folder / CHANGE}"):
                journal.write(msgspec.structs.replace(RECORD, reason="x" * 1000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        assert journal.content().unended == (RECORD,)
    assert sorted(one.name for one in folder.iterdir()) == [CHANGE, LOCK]


def test_a_history_that_is_damaged_begins_anew(folder: Path) -> None:
    """It is for people; no change depends on it."""
    with Journal(folder) as journal:
        (folder / PAST).write_text("{")
        assert journal.content().ended == ()
        journal.end(RECORD)

        assert journal.content().ended == (RECORD,)


def test_a_folder_is_made_with_those_above_it_and_for_this_user_alone(tmp_path: Path) -> None:
    """Whatever the umask is: what is in it decides what GPUs are rolled back to."""
    folder = tmp_path / "lib" / "mig"
    before = os.umask(0)
    try:
        with Journal(folder) as journal:
            journal.write(RECORD)
    finally:
        os.umask(before)

    modes = {each.name: each.stat().st_mode & 0o777 for each in (folder, *folder.iterdir())}
    assert modes == {"mig": 0o700, CHANGE: 0o600, LOCK: 0o600}


def _lock_pipe(folder: Path) -> str:
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / LOCK)
    return f"{folder / LOCK}: not a regular file"


def _lock_folder(folder: Path) -> str:
    (folder / LOCK).mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    return f"{folder / LOCK}: a link or another file is in its place"


def _file(folder: Path) -> str:
    folder.write_text("")
    return f"cannot write {folder}: File exists"


def _below_a_file(folder: Path) -> str:
    folder.parent.joinpath("mig").write_text("")
    return f"{folder / 'below'}: a link or another file is in its place"


@pytest.mark.parametrize("how", [_lock_pipe, _lock_folder, _file])
def test_a_folder_that_cannot_be_used_is_named_with_the_reason(
    folder: Path, how: Callable[[Path], str]
) -> None:
    """And nothing of it stays open."""
    why = how(folder)
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(JournalUnusable) as refused:
        Journal(folder)

    assert str(refused.value) == why
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_journal_below_a_file_is_refused(folder: Path) -> None:
    """By its own name."""
    why = _below_a_file(folder)

    with pytest.raises(JournalUnusable) as refused:
        Journal(folder / "below")

    assert str(refused.value) == why


def test_it_can_be_read_while_another_process_has_it(folder: Path) -> None:
    """Without the lock."""
    with Journal(folder) as journal:
        journal.write(RECORD)
        with Journal(folder, lock=False) as reader:
            assert reader.content().unended == (RECORD,)


def test_an_end_that_cannot_be_written_names_the_file(folder: Path) -> None:
    """The record of the change is a folder now, which no unlink removes."""
    with Journal(folder) as journal:
        (folder / CHANGE).mkdir()

        with pytest.raises(JournalUnusable) as refused:
            journal.end(RECORD)

    assert str(refused.value) == f"{folder / CHANGE}: a link or another file is in its place"


def test_layouts_that_are_damaged_are_none_and_the_log_says_why(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They begin anew with the next change."""
    with Journal(folder) as journal:
        (folder / SEEN).write_text("{")

        assert journal.verified() == {}

    ((level, message, fields),) = log_lines(caplog)
    assert (level, message, set(fields)) == ("WARNING", "verified MIG layouts not read", {"why"})
    assert "the file of verified MIG layouts" in fields["why"]


@pytest.mark.parametrize("name", FORMER_FILES)
def test_a_stuck_change_of_an_earlier_version_is_refused_by_the_name_of_its_file(
    folder: Path, name: str
) -> None:
    """Its GPUs are not known, so no GPU may be changed."""
    with Journal(folder) as journal:
        (folder / name).write_text('{"v":1,"changes":[]}')

        with pytest.raises(JournalUnusable, match=rf"{name}: .* stuck change"):
            journal.need_no_change(())


def test_the_lock_of_a_process_that_cannot_be_ended_is_left_to_it(folder: Path) -> None:
    """The next one locks a file of its own, and one alone has that."""
    hangs = Journal(folder)
    with pytest.raises(JournalBusy):
        Journal(folder)

    abandon_lock(folder)

    with Journal(folder):
        with pytest.raises(JournalBusy):
            Journal(folder)
        hangs.close()
        with pytest.raises(JournalBusy):
            Journal(folder)


def test_a_lock_whose_file_was_replaced_meanwhile_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking it, another process may have done both with the next file."""
    lock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        abandon_lock(folder)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)

    with pytest.raises(JournalBusy):
        Journal(folder)
