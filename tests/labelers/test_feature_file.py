# SPDX-License-Identifier: Apache-2.0
"""The NFD feature file: syntax, limits, one atomic step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from base.errors import BadInput, Permanent, Transient
from labelers.decision import Absent, Decisions, Keep, Value
from labelers.feature_file import (
    MAX_BYTES,
    feature_file_content,
    feature_file_labels,
    write_feature_file,
)

MODE, CLIQUE, PRODUCT = "nvidia.com/gpu.mode", "nvidia.com/gpu.clique", "nvidia.com/gpu.product"
WANTED: Decisions = {
    MODE: Value(text="compute"),
    PRODUCT: Value(text="Tesla-T4"),
    CLIQUE: Keep(reason="not known now"),
}
CONTENT = "nvidia.com/gpu.mode=compute\nnvidia.com/gpu.product=Tesla-T4\n"


def test_lines_are_sorted_key_value_pairs() -> None:
    assert feature_file_content({"b": "2", "a": ""}) == b"a=\nb=2\n"


def test_a_file_that_nfd_would_ignore_is_refused() -> None:
    assert len(feature_file_content({"k": "v" * (MAX_BYTES - 3)})) == MAX_BYTES
    with pytest.raises(Permanent, match="NFD ignores"):
        feature_file_content({"k": "v" * (MAX_BYTES - 2)})


def test_comments_and_what_is_no_label_are_passed_over() -> None:
    assert feature_file_labels(b"# a=b\n\n a = 1 \nflag\nb=x=y\n\xff=\n") == {
        "a": "1",
        "b": "x=y",
        "\ufffd": "",
    }


def test_the_first_write_makes_a_file_that_all_can_read(tmp_path: Path) -> None:
    path = tmp_path / "gpuscape"
    before = os.umask(0o077)
    try:
        changed = write_feature_file(path, WANTED)
    finally:
        os.umask(before)

    assert changed
    assert path.read_text() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_labels_leave_the_file_untouched(tmp_path: Path) -> None:
    path = tmp_path / "gpuscape"
    write_feature_file(path, WANTED)
    before = path.stat()

    assert not write_feature_file(path, WANTED)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_kept_label_stays_and_one_known_to_be_gone_goes(tmp_path: Path) -> None:
    path = tmp_path / "gpuscape"
    path.write_text(f"{CLIQUE}=rack.1\n{PRODUCT}=Old\n")

    write_feature_file(path, {**WANTED, PRODUCT: Absent(reason="no GPU")})

    assert path.read_text() == f"{CLIQUE}=rack.1\n{MODE}=compute\n"


@pytest.mark.parametrize(("size", "is_read"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_labels_to_be_kept_stay_in_a_file_that_nfd_reads_and_no_larger_one(
    tmp_path: Path, size: int, *, is_read: bool
) -> None:
    path = tmp_path / "gpuscape"
    path.write_text(f"{CLIQUE}=rack.1\n".ljust(size, "#"))

    assert write_feature_file(path, WANTED)
    assert path.read_text() == (f"{CLIQUE}=rack.1\n" if is_read else "") + CONTENT


def test_the_content_is_on_disk_before_the_name_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader sees the old file or the new one, and the temporary name is one NFD passes over."""
    path = tmp_path / "gpuscape"
    path.write_text("old=1\n")
    seen: list[tuple[str, list[str]]] = []

    def watch(_: int) -> None:
        seen.append((path.read_text(), [p.name for p in tmp_path.iterdir() if p != path]))

    monkeypatch.setattr(os, "fsync", watch)
    write_feature_file(path, WANTED)

    ((content, (temporary,)),) = seen
    assert content == "old=1\n"
    assert temporary.startswith(".")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpuscape"
    path.write_text("old=1\n")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(
        Transient, match=r"No space left on device; free some space: it is tried again"
    ):
        write_feature_file(path, WANTED)
    assert path.read_text() == "old=1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_nfd_passes_over_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="choose another name"):
        write_feature_file(tmp_path / ".gpuscape", WANTED)


def test_a_missing_folder_and_a_folder_as_file_name_their_fix(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="create the folder"):
        write_feature_file(tmp_path / "absent" / "gpuscape", WANTED)
    with pytest.raises(Permanent, match="name a file in this folder"):
        write_feature_file(tmp_path, WANTED)


def test_a_folder_without_the_right_to_write_names_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)

    with pytest.raises(Permanent, match=r"Permission denied; let this user write to /"):
        write_feature_file(tmp_path / "gpuscape", WANTED)


@pytest.mark.parametrize(
    ("number", "kind", "fix"),
    [
        (errno.ENOSPC, Transient, "free some space: it is tried again"),
        (errno.EDQUOT, Transient, "free some space: it is tried again"),
        (errno.EIO, Transient, "trying again"),
        (errno.EACCES, Permanent, "let this user write to {folder}"),
        (errno.EROFS, Permanent, "let this user write to {folder}"),
    ],
)
def test_each_reason_is_one_sentence_with_file_cause_and_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type, fix: str
) -> None:
    path = tmp_path / "gpuscape"

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)

    with pytest.raises(kind) as caught:
        write_feature_file(path, WANTED)
    assert str(caught.value) == (
        f"{path}: the feature file could not be written: {os.strerror(number)};"
        f" {fix.format(folder=tmp_path)}"
    )


def test_the_fix_of_a_folder_names_what_is_to_be_made_or_chosen(tmp_path: Path) -> None:
    absent = tmp_path / "absent" / "gpuscape"
    with pytest.raises(Permanent) as caught:
        write_feature_file(absent, WANTED)
    assert str(caught.value) == (
        f"{absent}: the feature file could not be written: No such file or directory;"
        " create the folder, or mount NFD's features.d there"
    )
    with pytest.raises(Permanent) as caught:
        write_feature_file(tmp_path, WANTED)
    assert str(caught.value).endswith("; name a file in this folder")
