# SPDX-License-Identifier: Apache-2.0
"""The image: how it is built, and that what is in it runs."""

from __future__ import annotations

import os
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import dockerfile
from tests.deploy.daemonset import container, daemonset
from tests.deploy.dockerfile import REPOSITORY, Instruction, copied, instructions

USER = "65532:65532"
SIMULATED = ("--simulate", "dgx-a100")
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def words(word: str) -> list[Instruction]:
    return [it for it in instructions() if it.word == word]


def stages() -> list[list[Instruction]]:
    """Each from its FROM on; what comes before the first belongs to none."""
    found: list[list[Instruction]] = []
    for it in instructions():
        if it.word == "FROM":
            found.append([])
        if found:
            found[-1].append(it)
    return found


def last_stage() -> list[Instruction]:
    """What is built without a target."""
    return stages()[-1]


def sources() -> list[str]:
    return [source for it in copied() for source in it.arguments[:-1]]


def test_everything_that_is_copied_is_there_and_sent_to_the_builder() -> None:
    sent = (REPOSITORY / ".dockerignore").read_text().splitlines()

    assert [source for source in sources() if not (REPOSITORY / source).exists()] == []
    assert {f"!{source}" for source in sources()} == {it for it in sent if it.startswith("!")}
    assert "*" in sent


def test_every_package_of_the_distribution_is_copied() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert set(packages) <= set(sources())


def test_packages_of_others_come_from_the_lock_file_with_hashes_and_as_wheels() -> None:
    installs = [it.rest for it in words("RUN") if "pip install" in it.rest]

    locked, own = installs
    assert "--require-hashes" in locked
    assert "--only-binary :all:" in locked
    assert locked.endswith("-r requirements/run.txt")
    assert "--no-deps --no-build-isolation ." in own


def test_the_base_is_pinned_to_a_patch_of_the_python_that_everything_is_tested_on() -> None:
    base, _, stage = words("FROM")[0].rest.partition(" AS ")
    name, _, tag = base.partition(":")
    major, minor, patch = tag.partition("-")[0].split(".")

    assert (name, patch.isdecimal()) == ("python", True)
    assert f">={major}.{minor}" == PROJECT["project"]["requires-python"]
    assert words("ARG")[0].rest == f"PYTHON_IMAGE={stage}"


def test_another_base_may_be_named_and_is_then_the_only_one() -> None:
    assert words("FROM")[1].rest == "${PYTHON_IMAGE} AS build"
    stage = words("FROM")[0].rest.rpartition(" ")[2]
    assert not any(f"--from={stage}" in it.rest for it in instructions())


def test_the_image_starts_what_the_daemonset_starts_and_has_its_version() -> None:
    agent = container(daemonset())

    assert [it.arguments for it in last_stage() if it.word == "ENTRYPOINT"] == [agent["command"]]
    assert agent["image"] == f"gpuscape:{PROJECT['project']['version']}"


def test_what_is_built_without_a_target_runs_as_nobody_unless_told() -> None:
    assert [it.rest for it in last_stage() if it.word in ("FROM", "USER")] == [
        "root AS image",
        USER,
    ]


def test_both_images_and_the_bill_start_from_nothing() -> None:
    assert [it.rest for it in words("FROM")[2:]] == [
        "scratch AS sbom",
        "scratch AS root",
        "root AS dcgm-exporter",
        "root AS image",
    ]


def test_the_image_in_dcgm_exporters_place_starts_its_command_and_asks_for_the_driver() -> None:
    stage = {it.word: it for it in stages()[-2]}

    assert stage["FROM"].rest == "root AS dcgm-exporter"
    assert stage["ENTRYPOINT"].arguments == ["gpuscape", "dcgm-exporter"]
    assert stage["USER"].rest == "0:0"
    assert "NVIDIA_VISIBLE_DEVICES=all" in stage["ENV"].arguments
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in stage["ENV"].arguments


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder")
def test_what_is_built_runs_on_its_own_and_holds_no_shell(tmp_path: Path) -> None:
    root = dockerfile.build(tmp_path)

    os.mknod(root / "dev" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # any runtime's
    (root / "dev" / "null").chmod(0o666)
    (command,) = root.rglob("bin/gpuscape")
    inside = f"/{command.relative_to(root)}"
    seen = subprocess.run(
        ["/usr/sbin/chroot", f"--userspec={USER}", root, inside, "discover", *SIMULATED],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (seen.returncode, seen.stderr) == (0, "")
    assert "8 x NVIDIA A100-SXM4-40GB" in seen.stdout
    programs = {file.name for folder in root.rglob("bin") for file in folder.iterdir()}
    assert {name for name in programs if not name.startswith("python")} == {"env", "gpuscape"}
    assert list(root.rglob("pip")) == []
