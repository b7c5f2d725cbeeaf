# SPDX-License-Identifier: Apache-2.0
"""gpuscape runs its own code, wherever it is started and whatever else has its packages' names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gpuscape.isolation import MARK, PACKAGES
from tests.gpuscape.conftest import REPOSITORY, Environment, foreign_wheel

LIBRARY = "click"
DISCOVER = ("discover", "--simulate", "a30-pair")
"""Reads the GPUs through the device reader, a process of its own."""
WAYS = [("gpuscape",), ("python", "-m", "gpuscape")]
BY_NAME = [" ".join(way) for way in WAYS]


def foreign(folder: Path, *packages: str) -> Path:
    """A folder with packages of these names, each of which ends the program that imports it."""
    for package in packages:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise SystemExit('foreign')\n")
    return folder


@pytest.fixture(scope="module")
def everywhere(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What ``discover`` prints of the simulated machine, from an empty folder."""
    ran = installed.run("gpuscape", *DISCOVER, cwd=tmp_path_factory.mktemp("empty"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "2 x NVIDIA A30" in ran.stdout
    return ran.stdout


@pytest.mark.parametrize("way", WAYS, ids=BY_NAME)
@pytest.mark.parametrize("python_path", [None, "", ".", "{here}", ":/nowhere", "{here}:{site}"])
def test_the_working_folder_and_pythonpath_add_no_code(
    installed: Environment,
    everywhere: str,
    tmp_path: Path,
    way: tuple[str, ...],
    python_path: str | None,
) -> None:
    here = foreign(tmp_path, *PACKAGES, LIBRARY)
    if python_path is not None:
        python_path = python_path.format(here=here, site=installed.packages)

    ran = installed.run(*way, *DISCOVER, cwd=here, python_path=python_path)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, everywhere, "")


def test_an_editable_install_runs_its_clone_though_other_packages_come_first(
    everywhere: str, tmp_path: Path, wheel: Path
) -> None:
    """Those are in the environment itself, so the device reader would find them too."""
    environment = Environment(tmp_path / "environment")
    environment.install(wheel)
    for package in ("gpuscape", *PACKAGES):
        (environment.packages / package).rename(tmp_path / package)
    (environment.packages / "gpuscape.pth").write_text(f"{tmp_path}\n")
    foreign(environment.packages, *PACKAGES)

    for way in WAYS:
        ran = environment.run(*way, *DISCOVER, cwd=tmp_path)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, everywhere, ""), way


def test_a_clone_runs_by_a_python_that_has_nothing_but_the_libraries(
    everywhere: str, tmp_path: Path
) -> None:
    """The device reader is started without the working folder, and finds the clone all the same."""
    ran = Environment(tmp_path).run("python", "-m", "gpuscape", *DISCOVER, cwd=REPOSITORY)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, everywhere, "")


def test_a_package_overwritten_by_another_distribution_is_an_error_that_names_both(
    wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    environment.install(wheel)
    file = environment.packages / "web" / "__init__.py"

    def started() -> set[tuple[int, str, str]]:
        """How it ends and what it prints, in each way that it is started."""
        runs = [environment.run(*way, "--version", cwd=tmp_path) for way in WAYS]
        return {(ran.returncode, ran.stdout, ran.stderr) for ran in runs}

    environment.install(foreign_wheel(tmp_path, "web.py", "0.62", "web"))
    assert started() == {
        (
            1,
            "",
            f"Error: {file} is not gpuscape's: it belongs to web.py 0.62. Install gpuscape again, "
            "into an environment of its own\n",
        )
    }
    environment.pip("uninstall", "--yes", "web.py")
    missing = f"Error: {file} is missing. Install gpuscape again, into an environment of its own\n"
    assert started() == {(1, "", missing)}
    environment.install(wheel)
    ((code, _, error),) = started()
    assert (code, error) == (0, "")


def test_a_package_that_was_loaded_before_the_start_is_an_error(
    wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    environment.install(wheel)
    folder = tmp_path / "foreign"
    (folder / "agent").mkdir(parents=True)
    (folder / "agent" / "__init__.py").touch()
    (environment.packages / "hook.pth").write_text(
        f"import sys; sys.path.insert(0, {str(folder)!r}); import agent\n"
    )

    ran = environment.run("gpuscape", "--version", cwd=tmp_path)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"Error: the package agent was loaded from {folder / 'agent' / '__init__.py'} before "
        "gpuscape started. Install gpuscape again, into an environment of its own\n"
    )


def test_the_packages_are_those_of_the_distribution_and_each_bears_the_mark() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert sorted(PACKAGES) == sorted(set(packages) - {"gpuscape"})
    assert [
        package
        for package in PACKAGES
        if MARK not in (REPOSITORY / package / "__init__.py").read_text()
    ] == []
