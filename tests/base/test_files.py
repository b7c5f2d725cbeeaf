# SPDX-License-Identifier: Apache-2.0
"""Files are read within bounds and replaced in one step; what goes wrong names file and reason."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest

from base import files
from base.errors import BadInput
from base.files import MOST_BYTES, cannot_write, read_bytes, read_text, replace_file


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "No space left on device: free some space"),
        (errno.EROFS, "Read-only file system: name another place"),
        (errno.EACCES, "Permission denied: let this user write there"),
        (errno.ENOENT, "No such file or directory: create the folder"),
    ],
)
def test_place_reason_and_fix_are_one_sentence(number: int, fix: str) -> None:
    sentence = cannot_write(Path("/a/b"), OSError(number, os.strerror(number)))
    assert sentence.startswith(f"cannot write /a/b: {fix}")


def test_another_reason_stands_alone() -> None:
    error = OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    assert cannot_write("x", error) == "cannot write x: No such device"
    assert cannot_write("x", OSError("odd")) == "cannot write x: odd"


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        *((number, "free some space") for number in (errno.ENOSPC, errno.EDQUOT)),
        *((number, "let this user write there") for number in (errno.EACCES, errno.EPERM)),
        *((number, "name another place") for number in (errno.EFBIG, errno.EROFS)),
        *((number, "name another place") for number in (errno.ENOTDIR, errno.ENAMETOOLONG)),
        (errno.EISDIR, "name a file in it"),
        (errno.EIO, "the kernel log says what is wrong with the device"),
    ],
)
def test_each_reason_with_a_fix_has_its_own(number: int, fix: str) -> None:
    reason = os.strerror(number)
    assert cannot_write("x", OSError(number, reason)).startswith(f"cannot write x: {reason}: {fix}")


# reading


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xc3\xa4" * 5)
    assert read_bytes(file, most_bytes=10) == b"\xc3\xa4" * 5
    assert read_text(file, most_bytes=10) == "ä" * 5
    with pytest.raises(BadInput, match=f"^{file}: larger than 0 MiB: is it the right file\\?$"):
        read_bytes(file, most_bytes=9)
    with pytest.raises(BadInput, match="larger than"):
        read_text(file, most_bytes=9)


def test_without_a_bound_of_its_own_a_file_has_a_mebibyte(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * MOST_BYTES)
    assert len(read_text(file)) == MOST_BYTES == 1 << 20
    with file.open("ab") as stream:
        stream.write(b"x")
    for read in (read_text, read_bytes):
        with pytest.raises(BadInput, match=f"^{file}: larger than 1 MiB: is it the right file"):
            read(file)


@pytest.mark.parametrize(("kind", "words"), [("", ""), ("machine file", "the machine file ")])
def test_a_file_that_cannot_be_read_is_named_with_its_kind_and_the_reason(
    tmp_path: Path, kind: str, words: str
) -> None:
    file = tmp_path / "file"
    for read in (read_text, read_bytes):
        with pytest.raises(BadInput) as caught:
            read(file, kind)
        assert str(caught.value) == f"cannot read {words}{file}: No such file or directory"
    file.write_bytes(b"\xff")
    with pytest.raises(BadInput) as caught:
        read_text(file, kind)
    assert str(caught.value) == f"cannot read {words}{file}: it is not UTF-8 text"


def test_a_file_without_a_kind_is_named_alone(tmp_path: Path) -> None:
    for read in (read_text, read_bytes):
        with pytest.raises(BadInput) as caught:
            read(tmp_path)
        assert str(caught.value) == f"cannot read {tmp_path}: Is a directory"


# replacing


def test_a_file_is_replaced_whole_with_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "file"
    before = os.umask(0o077)
    try:
        for content, mode in ((b"one", 0o644), (b"two, longer", 0o640), (b"", 0o600)):
            replace_file(file, content, mode=mode)
            assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (content, mode)
    finally:
        os.umask(before)
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_of_the_old_file_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with file.open("rb") as reader:
        replace_file(file, b"new", mode=0o600)
        assert reader.read() == b"old"


def temporary(file: Path) -> Path:
    """Under this name the new content is written first."""
    return file.with_name(f".{file.name}.{os.getpid()}")


def test_what_an_earlier_try_left_behind_is_used_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    temporary(file).write_bytes(b"far longer than the new one")
    replace_file(file, b"new", mode=0o600)
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


def test_no_link_is_followed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    other.write_bytes(b"another's")
    temporary(file).symlink_to(other)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        replace_file(file, b"new", mode=0o600)
    assert other.read_bytes() == b"another's"
    assert not file.exists()


def test_a_replacement_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def full(descriptor: int) -> None:
        written.append(os.fstat(descriptor).st_size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    written: list[int] = []
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new content", mode=0o600)
    assert written == [len(b"new content")]  # all of it was handed to the kernel before
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_where_nothing_can_be_made_the_first_reason_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "none" / "file", b"new", mode=0o600)
    (tmp_path / "no folder").touch()
    with pytest.raises(NotADirectoryError):  # nor can the rest be removed
        replace_file(tmp_path / "no folder" / "file", b"new", mode=0o600)


@pytest.mark.parametrize("writers", [0, 1])
def test_a_named_pipe_whose_end_does_not_come_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    """Nobody opens its other end, or somebody does and leaves it at that."""
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.05)
    pipe = tmp_path / "settings.yaml"
    os.mkfifo(pipe)
    opened = [os.open(pipe, os.O_RDWR) for _ in range(writers)]
    with pytest.raises(BadInput, match=r"settings\.yaml: it is a named pipe, .*; name a file"):
        read_bytes(pipe)
    for descriptor in opened:
        os.close(descriptor)


def test_a_named_pipe_is_refused_at_once_where_only_a_file_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIPE_SECONDS", 3600.0)
    pipe = tmp_path / "state.json"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match=r"the state file .*: it is a named pipe"):
        read_bytes(pipe, "state file", from_pipe=False)


@pytest.mark.parametrize("bound", [1 << 20, 100_000])
def test_what_comes_through_a_pipe_is_read_to_its_end_within_its_bound(
    tmp_path: Path, bound: int
) -> None:
    """As a shell hands over the output of a command: ``<(command)``."""
    pipe, content = tmp_path / "pipe", b"x" * 200_000
    os.mkfifo(pipe)
    writer = threading.Thread(target=_write, args=(pipe, content))
    writer.start()
    if bound < len(content):
        with pytest.raises(BadInput, match="larger than"):
            read_bytes(pipe, most_bytes=bound)
    else:
        assert read_bytes(pipe, most_bytes=bound) == content
    writer.join()


def _write(pipe: Path, content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.write_bytes(content)
