# SPDX-License-Identifier: Apache-2.0
"""Environments with gpuscape in them, as people have them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

REPOSITORY = Path(__file__).parents[2]


class Environment:
    """A virtual environment that has the libraries of gpuscape, and no gpuscape yet."""

    def __init__(self, folder: Path) -> None:
        venv.EnvBuilder(symlinks=True).create(folder)
        self._scripts = folder / "bin"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        libraries = sysconfig.get_path("purelib")
        (self.packages / "libraries.pth").write_text(f"{libraries}\n")

    def pip(self, *arguments: str | Path) -> None:
        """Run pip on this environment, without a network."""
        python = self._scripts / "python"
        command = [sys.executable, "-m", "pip", "--quiet", "--python", python, *arguments]
        subprocess.run(command, check=True)

    def install(self, wheel: Path) -> None:
        """Install a wheel, over whatever has its files."""
        self.pip("install", "--no-index", "--no-deps", "--force-reinstall", wheel)

    def run(
        self, *command: str, cwd: Path, python_path: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its scripts there."""
        return subprocess.run(
            [self._scripts / command[0], *command[1:]],
            cwd=cwd,
            env={} if python_path is None else {"PYTHONPATH": python_path},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gpuscape as a wheel, built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Somewhere gpuscape is installed, for tests that leave it as it is."""
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(wheel)
    return environment


def foreign_wheel(folder: Path, name: str, version: str, package: str) -> Path:
    """Another distribution, with a package of this name."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{package}/__init__.py": "print('foreign')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{info}/RECORD"
    with ZipFile(wheel, "w") as archive:
        for path, text in {
            **files,
            record: "".join(f"{path},,\n" for path in (*files, record)),
        }.items():
            archive.writestr(path, text)
    return wheel
