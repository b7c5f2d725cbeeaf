# SPDX-License-Identifier: Apache-2.0
"""A package that is in no list is named, and all lists are those of one place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuscape.isolation import PACKAGES
from tests.deploy.dockerfile import REPOSITORY
from tools import package_lists

LISTS = (package_lists.PROJECT, package_lists.IGNORED, package_lists.IMAGE)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files with lists, and every package with one module."""
    for path in LISTS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)
    for package in ("gpuscape", *PACKAGES, "tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_the_lists_of_this_tree_are_whole() -> None:
    assert list(package_lists.problems(REPOSITORY)) == []
    for path, text in package_lists.files(REPOSITORY).items():
        assert path.read_text() == text


def test_a_folder_with_python_that_is_no_package_is_named(tree: Path) -> None:
    (tree / "stages").mkdir()
    (tree / "stages/sets.py").touch()
    (tree / "pictures").mkdir()

    assert list(package_lists.problems(tree)) == [
        "stages/ has Python and is no package: add it to PACKAGES in gpuscape/isolation.py"
    ]


def test_a_package_without_a_layer_is_named(tree: Path) -> None:
    edit(tree / package_lists.PROJECT, "kube | web | ", "kube | ")

    assert list(package_lists.problems(tree)) == [
        "web has no layer: add it to the first contract in pyproject.toml"
    ]


def test_a_list_that_nothing_keeps_whole_is_named(tree: Path) -> None:
    edit(tree / package_lists.PROJECT, "# packages with tests, tools", "")
    text = (tree / package_lists.PROJECT).read_text()
    (line,) = (
        number for number, each in enumerate(text.splitlines(), 1) if each.endswith('"tools"]  ')
    )

    assert list(package_lists.problems(tree)) == [
        f"pyproject.toml:{line} lists packages: end the line in `# packages`"
    ]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (
            package_lists.PROJECT,
            'packages = ["gpuscape", "actuator", "agent", ',
            'packages = ["x", ',
        ),
        (package_lists.IGNORED, "!fleet\n", ""),
        (package_lists.IMAGE, "COPY kube kube\n", ""),
    ],
)
def test_a_package_that_a_list_lacks_is_put_there(
    tree: Path, path: Path, old: str, new: str
) -> None:
    before = (tree / path).read_text()
    (tree / path).write_text(before.replace(old, new))
    assert (tree / path).read_text() != before

    assert package_lists.files(tree)[tree / path] == before


def test_a_list_without_what_is_no_package_is_refused(tree: Path) -> None:
    edit(tree / package_lists.PROJECT, "# packages with tests, tools", "# packages without clli")

    with pytest.raises(ValueError, match="no package: clli"):
        package_lists.files(tree)
