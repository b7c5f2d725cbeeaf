# SPDX-License-Identifier: Apache-2.0
"""Why there is no session: what pynvml calls "not found" has several causes and several fixes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pynvml
import pytest

from discovery.driver_errors import DriverAbsent
from discovery.nvml.session import open_session, use_library
from discovery.simulator.driver.library import put_under_pynvml
from tests import machines


def why(load_from: Path | None) -> str:
    """The sentence about a library at this path, or about that of the loader's choice."""
    undo = put_under_pynvml(ctypes.CDLL)
    try:
        if load_from is not None:
            use_library(str(load_from))
        with pytest.raises(DriverAbsent) as caught:
            open_session()
    finally:
        undo()
    return str(caught.value)


def test_a_library_that_is_no_library_does_not_load(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"not an ELF file, as a placeholder of a container image")
    assert why(library).startswith(
        f"the NVIDIA driver's library is there and does not load: {library}"
    )


def test_a_library_that_lacks_another_does_not_load(tmp_path: Path) -> None:
    """Its message ends as that of a file which is not there, and names another."""
    compiler = shutil.which("cc") or pytest.skip("a compiler makes the library")
    source, needed = tmp_path / "empty.c", tmp_path / "libneeded.so"
    source.write_text("int here;")
    library = tmp_path / "libnvidia-ml.so.1"
    for made, linked in ((needed, []), (library, ["-Wl,--no-as-needed", "-L.", "-lneeded"])):
        subprocess.run([compiler, "-shared", "-o", made, source, *linked], cwd=tmp_path, check=True)
    needed.unlink()
    sentence = why(library)
    assert "does not load: libneeded.so: cannot open" in sentence


def test_a_path_without_a_file_is_not_found(tmp_path: Path) -> None:
    assert "libnvidia-ml.so.1 is not found" in why(tmp_path / "none.so")


def test_a_simulated_machine_without_a_driver_has_no_library(tmp_path: Path) -> None:
    simulation = machines.simulation(tmp_path)
    simulation.set_driver("absent")
    with simulation, pytest.raises(DriverAbsent, match="is not found"):
        open_session()
    assert pynvml.nvmlLib is None
