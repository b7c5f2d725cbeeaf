# SPDX-License-Identifier: Apache-2.0
"""An earlier state of the project: its files, its programs, and its image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.controlplane.builds import NotPreparedError
from tests.controlplane.programs import ROOT

COMMIT: Final = "93d38a6"
"""The first one whose chart has all of agent, coordinator and extender."""
VERSION: Final = "0.0.9"
"""What its chart calls itself here: a release has a number of its own, a commit has not."""

RELEASE: Final = "0.1.0"
RELEASE_COMMIT: Final = "de218040"
"""The release before, with which the programs of this tree have to work while an upgrade lasts. No
release is older than the formats of 0.1.0, so it is the first commit that has them. Each release
moves both: docs/releasing.md."""

_MAKE: Final = "from tests.node import images; print(images.our_image())"

_PROGRAM: Final = """\
#!{python} -P
import sys
sys.path.insert(0, "{tree}")
from gpuscape.__main__ import main
sys.exit(main())
"""


def unpack(folder: Path) -> Path:
    """Its files in a new folder. Raises NotPreparedError where the history is not here."""
    _extract(folder, COMMIT)
    chart = folder / "deploy/chart/Chart.yaml"
    lines = chart.read_text("utf-8").splitlines()
    for key in ("version", "appVersion"):
        (place,) = (at for at, line in enumerate(lines) if line.startswith(f"{key}: "))
        lines[place] = f"{key}: {VERSION}"
    chart.write_text("\n".join((*lines, "")), encoding="utf-8")
    return folder


def release_program(folder: Path) -> Path:
    """``gpuscape`` of the release before, in a new folder. Raises NotPreparedError as above."""
    _extract(folder, RELEASE_COMMIT)
    return program(folder)


def _extract(folder: Path, commit: str) -> None:
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", commit], capture_output=True, check=False
    )
    if archive.returncode:
        reason = archive.stderr.decode().strip().splitlines()[-1]
        raise NotPreparedError(
            f"no earlier state of the project ({reason}): git fetch --unshallow brings its history"
        )
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def image(tree: Path) -> Path:
    """Its container image, as its own test bed makes it. Raises CalledProcessError."""
    made = subprocess.run(
        [sys.executable, "-c", _MAKE], cwd=tree, capture_output=True, text=True, check=True
    )
    return Path(made.stdout.strip())


def program(tree: Path) -> Path:
    """Its ``gpuscape``, on the packages of this environment; for what starts no further one."""
    made = tree / "gpuscape.py"
    made.write_text(_PROGRAM.format(python=sys.executable, tree=tree), encoding="utf-8")
    made.chmod(0o755)
    return made
