# SPDX-License-Identifier: Apache-2.0
"""A release: what has to agree, and the workflow that makes it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfile import instructions
from tools import changelog, release

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
PLACES = ("pyproject.toml", "CHANGELOG.md", "README.md", "deploy", "docs")
TAG = "v0.1.0"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A copy of what a release reads."""
    for place in PLACES:
        source = ROOT / place
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / place)
    return tmp_path


def edit(root: Path, place: str, old: str, new: str) -> None:
    text = (root / place).read_text()
    assert old in text
    (root / place).write_text(text.replace(old, new, 1))


def test_what_agrees_has_no_fault_and_has_notes(prepared: Path) -> None:
    assert list(release.faults(prepared, TAG)) == []
    text = (prepared / "CHANGELOG.md").read_text()
    assert changelog.notes(text, "0.1.0").startswith("The first release.")


OTHERS = {
    "pyproject.toml": ('version = "0.1.0"', 'version = "0.2.0"', "pyproject.toml: version is"),
    "chart": ("version: 0.1.0\napp", "version: 0.2.0\napp", "Chart.yaml: version is 0.2.0"),
    "application": ("appVersion: 0.1.0", "appVersion: 0.2.0", "Chart.yaml: appVersion is 0.2.0"),
    "manifest": ("gpuscape:0.1.0", "gpuscape:0.2.0", "base/daemonset.yaml: image is 0.2.0"),
    "variable": (
        "MANIFESTS_VERSION, value: 0.1.0",
        "MANIFESTS_VERSION, value: 0.2.0",
        "base/daemonset.yaml: MANIFESTS_VERSION is 0.2.0",
    ),
    "changelog": ("## 0.1.0 - 2026", "## 0.1.1 - 2026", "CHANGELOG.md: nothing stands under"),
    "form": ("## 0.1.0 - 2026-11-28\n", "## 0.1.0 - 2026-11-28\n\n- A line.\n", "put it under one"),
    "readme": ("$image:0.1.0", "$image:0.2.0", "README.md: tag of the image is 0.2.0"),
    "kustomization": ("newTag: 0.1.0", "newTag: 0.2.0", "docs/shadow-mode.md: tag of the image"),
    "variant": ("image.tag=0.1.0-", "image.tag=0.2.0-", "docs/dcgm-exporter.md: tag of the"),
    "build": ("gpuscape:0.1.0", "gpuscape:0.2.0", "deploy/image/Dockerfile: tag of the image"),
}
FILES = {
    "pyproject.toml": "pyproject.toml",
    "manifest": "deploy/base/daemonset.yaml",
    "variable": "deploy/base/daemonset.yaml",
    "changelog": "CHANGELOG.md",
    "form": "CHANGELOG.md",
    "readme": "README.md",
    "kustomization": "docs/shadow-mode.md",
    "variant": "docs/dcgm-exporter.md",
    "build": "deploy/image/Dockerfile",
}


@pytest.mark.parametrize("where", OTHERS)
def test_one_place_that_differs_is_named_with_what_to_do(prepared: Path, where: str) -> None:
    old, new, named = OTHERS[where]
    edit(prepared, FILES.get(where, "deploy/chart/Chart.yaml"), old, new)
    (fault,) = release.faults(prepared, TAG)
    assert named in fault
    assert "write 0.1.0 there" in fault or fault.startswith("CHANGELOG.md")


def test_a_tag_of_another_form_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (fault,) = release.faults(tmp_path, "0.1.0")
    assert "as in v0.2.0" in fault


def test_this_checkout_agrees_about_its_version() -> None:
    assert list(release.faults(ROOT, TAG)) == []


def test_the_installed_program_reports_the_version_of_the_files() -> None:
    command = Path(sys.executable).with_name("gpuscape")
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert printed.stdout == f"gpuscape {TAG.removeprefix('v')}\n"


def workflow() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((WORKFLOWS / "release.yml").read_text())
    return made


def test_a_foreign_linter_finds_nothing_in_the_workflows() -> None:
    """zizmor: injection, rights, credentials that stay."""
    linter = Path(sys.executable).with_name("zizmor")
    words = ("--offline", "--no-progress", "--quiet", WORKFLOWS)
    done = subprocess.run([linter, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout


def test_actions_are_pinned_by_commit_with_their_version_behind() -> None:
    """A tag can be moved to other code: tj-actions/changed-files, CVE-2025-30066."""
    used = [
        line.strip()
        for file in WORKFLOWS.glob("*.yml")
        for line in file.read_text().splitlines()
        if "uses:" in line
    ]
    pin = r"(- )?uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [line for line in used if not re.fullmatch(pin, line)] == []
    versions: dict[str, set[str]] = {}
    for line in used:
        action, _, version = line.partition("uses: ")[2].partition("@")
        versions.setdefault(action, set()).add(version)
    assert {action for action, its in versions.items() if len(its) > 1} == set()


def test_every_folder_with_pins_has_its_proposals_of_newer_versions() -> None:
    made = yaml.safe_load((WORKFLOWS.parent / "dependabot.yml").read_text())
    folders: dict[str, list[str]] = {
        it["package-ecosystem"]: it.get("directories") or [it["directory"]]
        for it in made["updates"]
    }

    def covered(ecosystem: str, file: Path) -> bool:
        folder = f"/{file.parent.relative_to(ROOT)}"
        return any(PurePosixPath(folder).match(pattern) for pattern in folders[ecosystem])

    kinds = {"gomod": "go.mod", "npm": "package-lock.json"}
    for ecosystem, name in kinds.items():
        files = list((ROOT / "tests").rglob(name))
        assert [file for file in files if not covered(ecosystem, file)] == []
    assert folders["docker"] == ["/deploy/image"]
    assert folders["github-actions"] == ["/"]
    assert folders["pip"] == ["/", "/requirements"]


def test_pins_are_compared_with_advisories_each_week_and_where_one_changes() -> None:
    made = yaml.safe_load((WORKFLOWS / "advisories.yml").read_text())
    events = made[True]  # "on", as YAML 1.1 reads it
    assert [it["cron"] for it in events["schedule"]] == ["17 5 * * 1"]
    assert {"requirements/**", "deploy/image/Dockerfile"} <= set(events["pull_request"]["paths"])
    steps = [it.get("run", "") for it in made["jobs"]["compare"]["steps"]]
    assert "make advisories" in steps


def test_no_job_has_more_rights_than_it_needs() -> None:
    made = workflow()
    assert made["permissions"] == {}
    signs = {"contents": "read", "id-token": "write"}
    assert {name: job["permissions"] for name, job in made["jobs"].items()} == {
        "agree": {"contents": "read"},
        "image": signs,
        "chart": signs,
    }


def test_nothing_is_pushed_before_everything_agrees() -> None:
    jobs = workflow()["jobs"]
    checks = "\n".join(it.get("run", "") for it in jobs["agree"]["steps"])
    assert "tools.release" in checks
    assert all("agree" in jobs[name]["needs"] for name in ("image", "chart"))
    assert workflow()["defaults"]["run"]["shell"] == "bash"  # with pipefail


def test_it_builds_stages_that_are_there_with_arguments_that_they_know() -> None:
    job = workflow()["jobs"]["image"]
    text = "\n".join(it.get("run", "") for it in job["steps"])
    stages = {it.rest.rpartition(" AS ")[2] for it in instructions() if it.word == "FROM"}
    targets = {it["target"] for it in job["strategy"]["matrix"]["include"]}
    assert targets | set(re.findall(r"--target (\w+)", text)) <= stages
    known = {it.rest.partition("=")[0] for it in instructions() if it.word == "ARG"}
    assert set(re.findall(r'--build-arg "(\w+)=', text)) == known
    platforms = set(re.findall(r"--platform (linux/\w+,linux/\w+)", text))
    assert platforms == {"linux/amd64,linux/arm64"}
    for words in ("--provenance mode=max", "--sbom true", "rewrite-timestamp=true", "cosign sign"):
        assert words in text
