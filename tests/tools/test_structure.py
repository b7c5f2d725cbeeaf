# SPDX-License-Identifier: Apache-2.0
"""The report on the source tree finds what it is for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools.structure import (
    MOST_LINES,
    MOST_MODULES,
    MOST_SHARED_FUNCTIONS,
    PRODUCT,
    ROOT,
    Structure,
    circles,
    faults,
    modules,
    report,
    structure,
)

SMALL = {
    "house/__init__.py": "",
    "house/door.py": '"""A door."""\n\nfrom house import wall\n\n\nclass Door:\n    pass\n',
    "house/wall.py": '"""What was said of a wall."""\n\n\nclass Wall:\n    pass\n',
}


def tree(root: Path, files: dict[str, str]) -> Structure:
    """The figures of these files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return structure(modules(root, ("house",)))


def test_a_small_tree_has_no_faults(tmp_path: Path) -> None:
    found = tree(tmp_path, SMALL)
    assert (found.modules, found.classes, dict(found.vague)) == (3, 2, {"said": 1})
    assert list(faults(found)) == []


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("house/roof.py", "class Door: ...", "class Door stands in house.door, house.roof"),
        (
            "house/roof.py",
            "class Roof:\n    class Wall: ...",
            "class Wall stands in house.roof, house.wall",
        ),
        ("house/roof.py", "\n" * (MOST_LINES + 1), f"house/roof.py has {MOST_LINES + 1} lines"),
        (
            "house/roof.py",
            '"""A roof. Pure."""\nimport time\n',
            "house/roof.py says Pure and imports time",
        ),
        (
            "house/wall.py",
            "from house.door import Door",
            "import each other: house.door, house.wall",
        ),
        (
            "house/wall.py",
            "def late():\n    import house.door",
            "import each other: house.door, house.wall",
        ),
    ],
)
def test_what_is_past_a_limit_is_named(tmp_path: Path, path: str, text: str, fault: str) -> None:
    (found,) = faults(tree(tmp_path, {**SMALL, path: text}))
    assert fault in found


def test_a_folder_with_too_many_modules_is_named(tmp_path: Path) -> None:
    many = {f"house/room{number}.py": "" for number in range(MOST_MODULES - len(SMALL))}
    assert not tree(tmp_path, {**SMALL, **many}).large
    (found,) = faults(tree(tmp_path, {"house/attic.py": ""}))
    assert found.startswith(f"house has {MOST_MODULES + 1} modules")


def test_a_circle_by_way_of_others_is_one_group() -> None:
    graph = {
        "a": {"b"},
        "b": {"c"},
        "c": {"a"},
        "d": {"a"},
        "e": {"f"},
        "f": {"e"},
        "g": set[str](),
    }
    assert circles(graph) == [["a", "b", "c"], ["e", "f"]]


def test_names_that_stand_twice_are_in_the_report(tmp_path: Path) -> None:
    found = tree(tmp_path, {**SMALL, "house/roof.py": "class Door: ...\nclass _Wall: ..."})
    assert "- `Door`: house.door, house.roof." in report(found, found)
    assert "`_Wall`" not in report(found, found)


def test_every_folder_that_is_shipped_is_product() -> None:
    shipped = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "tools"}
    assert shipped <= set(PRODUCT)


def test_names_of_several_modules_are_counted_and_may_not_become_more(tmp_path: Path) -> None:
    doors = {f"house/{folder}/door.py": "def open(): ...\ndef _lock(): ...\n" for folder in "abc"}
    found = tree(tmp_path, SMALL | doors | {"house/a/__init__.py": "", "house/b/__init__.py": ""})
    crowd = replace(found, shared_functions=MOST_SHARED_FUNCTIONS + 1, shared_files=99)

    assert (found.shared_functions, found.shared_files) == (1, 1)
    assert [fault.partition(":")[0] for fault in faults(crowd)] == [
        "9 names are those of public functions of several modules, more than 8",
        "99 names are those of several files, more than 0",
    ]


def test_code_is_what_is_neither_blank_nor_a_comment_nor_a_docstring(tmp_path: Path) -> None:
    text = (
        '"""Door.\n\nOf wood.\n"""\n\n# oak\nWIDTH = 1  # metres\n"""In metres."""\n\nx = (\n  2)\n'
    )
    found = tree(tmp_path, {"house/door.py": text})
    assert (found.lines, found.code_lines) == (11, 3)


def test_more_unclear_words_than_the_limit_are_a_fault(tmp_path: Path) -> None:
    text = 'def open(it): ...\n\n\ndef lock(key):\n    """Of a door."""\n'
    unclear = tree(tmp_path, {"house/door.py": text})

    assert (unclear.pronouns, unclear.openings) == (0.5, 1.0)
    assert [fault.partition(" (")[0] for fault in faults(unclear)] == [
        "50.00% of the names in functions are pronouns",
        "100.00% of the docstrings open without a subject",
    ]
    assert "| 50.00% |" in report(unclear, unclear)
