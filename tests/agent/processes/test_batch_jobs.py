# SPDX-License-Identifier: Apache-2.0
"""Jobs of a batch system, from files that its scripts write; whatever else is there is refused."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent.processes.batch_jobs import MOST_BYTES, MOST_CHARACTERS, MOST_JOBS, JobFolder, read_jobs
from base.errors import BadInput
from discovery.gpu_part import GpuPart
from exporters.device_user_names import JobIds
from tests import build
from tests.log_lines import whys

CUT = build.changed(build.gpu(1), mig_devices=(build.mig_device(gi=3), build.mig_device(gi=7)))
NODE = build.node([build.gpu(0), CUT, replace(build.gpu(2), index=None)])
BUS_0, BUS_1, _ = (gpu.bus_id for gpu in NODE.gpus)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def jobs(folder: Path, **files: str) -> JobIds:
    """What is found with these files there; ``_`` stands for the dot in a name, after a ``g``."""
    for name, text in files.items():
        (folder / name.removeprefix("g").replace("_", ".")).write_text(text)
    return JobFolder(folder).poll(NODE)


def refusal(file: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_jobs(file)
    return str(caught.value)


def test_a_gpu_s_file_has_one_job_a_line(folder: Path) -> None:
    """Blank lines and blanks around are nothing; a job named twice is one."""
    assert jobs(folder, g0="4711\n 4712_3 \r\n\n4711\n") == {GpuPart(BUS_0): ("4711", "4712_3")}


def test_a_gpu_s_jobs_are_its_instances_too_but_for_those_with_a_file(folder: Path) -> None:
    found = jobs(folder, g1="whole\n", g1_7="part\n")

    whole, three, seven = (GpuPart(BUS_1, instance) for instance in (None, 3, 7))
    assert found == {whole: ("whole",), three: ("whole",), seven: ("part",)}


def test_an_instance_whose_file_is_empty_has_no_job(folder: Path) -> None:
    assert jobs(folder, g1="whole\n", g1_7="") == {
        GpuPart(BUS_1): ("whole",),
        GpuPart(BUS_1, 3): ("whole",),
    }


def test_an_instance_whose_file_is_refused_is_not_given_its_gpu_s_jobs(folder: Path) -> None:
    found = jobs(folder, g1="whole\n", g1_7="a\x00b")

    assert found == {GpuPart(BUS_1): ("whole",), GpuPart(BUS_1, 3): ("whole",)}


def test_files_of_no_gpu_here_are_passed_over(folder: Path) -> None:
    found = jobs(folder, g5="x\n", g00="x\n", g1_4="x\n", readme="x\n", g0="job\n")

    assert found == {GpuPart(BUS_0): ("job",)}


def test_files_that_change_or_go_are_followed(folder: Path) -> None:
    """Also one of the same length, written within the same moment."""
    there = JobFolder(folder)
    file = folder / "0"
    seen = []
    for text in ("1", "2", "3"):
        file.write_text(text)
        seen.append(there.poll(NODE)[GpuPart(BUS_0)])
    file.unlink()

    assert seen == [("1",), ("2",), ("3",)]
    assert there.poll(NODE) == {}


def test_text_of_any_language_is_a_job_id(folder: Path) -> None:
    """Quotes are the renderer's to escape."""
    (folder / "0").write_text('größe-"1"\\n\n')

    assert read_jobs(folder / "0") == ('größe-"1"\\n',)


def test_a_file_that_is_not_there_names_no_jobs(folder: Path) -> None:
    assert read_jobs(folder / "0") is None


@pytest.mark.parametrize(
    "line", ["x" * (MOST_CHARACTERS + 1), "a\x00b", "a\x1b[31mb", "a\tb", "a\u2028b"]
)
def test_a_line_that_no_batch_system_writes_is_refused_with_its_number(
    folder: Path, line: str
) -> None:
    file = folder / "0"
    file.write_text(f"4711\n{line}\n")

    assert refusal(file) == (
        f"{file}:2 is no job id: at most {MOST_CHARACTERS} printable characters"
    )


def test_other_bytes_than_text_are_refused(folder: Path) -> None:
    file = folder / "0"
    file.write_bytes(b"4711\n\xff\n")

    assert refusal(file) == f"{file} is no UTF-8 text: write one job id a line"


def test_a_file_that_is_too_large_is_refused_unread(folder: Path) -> None:
    file = folder / "0"
    file.write_text("1\n" * (MOST_BYTES // 2) + "1")

    assert refusal(file) == f"{file} is larger than {MOST_BYTES} bytes: write one job id a line"


def test_too_many_jobs_are_refused(folder: Path) -> None:
    file = folder / "0"
    most = [str(n) for n in range(MOST_JOBS)]
    file.write_text("\n".join(most))
    assert read_jobs(file) == tuple(most)

    file.write_text("\n".join([*most, "more"]))

    assert refusal(file) == (
        f"{file} has {MOST_JOBS + 1} jobs: at most {MOST_JOBS} are shown for one GPU"
    )


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "0")

    assert refusal(folder / "0") == f"{folder / '0'} is no regular file: write one job id a line"


def test_a_folder_is_refused_and_leaves_nothing_open(folder: Path) -> None:
    (folder / "0").mkdir()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a Path would be no shorter

    said = {refusal(folder / "0") for _ in range(5)}

    assert said == {f"{folder / '0'} is no regular file: write one job id a line"}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  # as above


def test_a_link_is_not_followed(folder: Path) -> None:
    """Whoever may write here could have any file of the host shown as jobs."""
    (folder / "secret").write_text("secret\n")
    (folder / "0").symlink_to(folder / "secret")

    assert refusal(folder / "0") == (
        f"{folder / '0'} is a link: write the job ids into the file itself"
    )


def test_what_is_wrong_is_logged_once_and_the_rest_works(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (folder / "0").write_text("job\n")
    (folder / "1").write_bytes(b"\xff")
    there = JobFolder(folder)

    assert there.poll(NODE) == there.poll(NODE) == {GpuPart(BUS_0): ("job",)}

    assert whys(caplog, "HPC job mapping incomplete") == [
        f"{folder / '1'} is no UTF-8 text: write one job id a line"
    ]


def test_a_missing_folder_is_logged_once_until_it_was_there(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    there = JobFolder(folder / "jobs")
    for _ in range(2):
        assert there.poll(NODE) == {}
    (folder / "jobs").mkdir()
    there.poll(NODE)
    (folder / "jobs").rmdir()
    there.poll(NODE)

    line = f"{folder / 'jobs'} is no folder: create it, or mount it into the pod"
    assert whys(caplog, "HPC job mapping incomplete") == [line, line]
