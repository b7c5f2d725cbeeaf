# SPDX-License-Identifier: Apache-2.0
"""The jobs of a batch system that run on each GPU, as its scripts write them into a folder.

Source: dcgm-exporter's --hpc-job-mapping-dir. A file is named by the GPU's index, or by that and
the id of a GPU instance (``0.7``), and has one job id a line.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from base.errors import BadInput
from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot
from exporters.device_user_names import JobIds

log = logging.getLogger(__name__)

MOST_BYTES: Final = 16 << 10
MOST_JOBS: Final = 64
"""Jobs on one GPU at most: each is one more copy of all its series."""
MOST_CHARACTERS: Final = 128


class JobFolder:
    """A folder that scripts write and remove files in. For one thread.

    Only the files of GPUs that are here are opened, so whatever else lies there costs nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logged: tuple[str, ...] = ()

    def poll(self, snapshot: NodeSnapshot) -> JobIds:
        """The jobs that run now. A file that is not as it should be is logged once and left out.

        A GPU's file is about its instances too, but for those that have one of their own.
        """
        faults: list[str] = []
        jobs = {
            entity: job_ids
            for entity, names in _files(snapshot)
            if (job_ids := self._first(names, faults))
        }
        if not self._is_there():
            faults = [f"{self._folder} is no folder: create it, or mount it into the pod"]
        self._say(tuple(dict.fromkeys(faults)))
        return jobs

    def _is_there(self) -> bool:
        with contextlib.suppress(OSError):
            return self._folder.is_dir()
        return False

    def _first(self, names: tuple[str, ...], faults: list[str]) -> tuple[str, ...]:
        """The jobs in the first of these files that is there; none where that one is at fault."""
        for name in names:
            try:
                jobs = read_jobs(self._folder / name)
            except BadInput as error:
                faults.append(str(error))
                return ()
            if jobs is not None:
                return jobs
        return ()

    def _say(self, faults: tuple[str, ...]) -> None:
        for fault in faults:
            if fault not in self._logged:  # once, not at every poll
                log.warning("HPC job mapping incomplete", extra={"why": fault})
        self._logged = faults


def _files(snapshot: NodeSnapshot) -> Iterator[tuple[GpuPart, tuple[str, ...]]]:
    """Names of the files about each GPU and GPU instance, the one that counts first."""
    for gpu in snapshot.gpus:
        if gpu.index is not None:
            whole = str(gpu.index)
            yield GpuPart(gpu.bus_id), (whole,)
            for instance in dict.fromkeys(mig.gpu_instance_id for mig in gpu.mig_devices):
                yield GpuPart(gpu.bus_id, instance), (f"{whole}.{instance}", whole)


def read_jobs(file: Path) -> tuple[str, ...] | None:
    """The job ids in a file, each once; None where there is no such file.

    Raises BadInput, naming file and line, for what no batch system writes.
    """
    try:
        content = _content(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}") from None
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise BadInput(f"{file} is no UTF-8 text: write one job id a line") from None
    jobs: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        job = line.strip()
        if len(job) > MOST_CHARACTERS or not job.isprintable():
            raise BadInput(
                f"{file}:{number} is no job id: at most {MOST_CHARACTERS} printable characters"
            )
        if job:
            jobs[job] = None
    if len(jobs) > MOST_JOBS:
        raise BadInput(f"{file} has {len(jobs)} jobs: at most {MOST_JOBS} are shown for one GPU")
    return tuple(jobs)


def _content(file: Path) -> bytes:
    # a link may lead to a file of others, and a pipe would be waited for
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BadInput(f"{file} is a link: write the job ids into the file itself") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(f"{file} is no regular file: write one job id a line")
        content = os.read(descriptor, MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise BadInput(f"{file} is larger than {MOST_BYTES} bytes: write one job id a line")
    return content
