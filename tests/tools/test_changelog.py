# SPDX-License-Identifier: Apache-2.0
"""The changelog's form: what is refused, and what a release prints as its notes."""

from __future__ import annotations

import pytest

from tools import changelog

FORM = """# Changelog

## Unreleased

### Fixed

- An entry that needs two lines, since its reason
  does not fit on the first.

## 0.2.0 - 2027-01-15

Read this first.

### Added

#### Labels

- A label.

### Security

- A floor.

## 0.1.0 - 2026-11-28

### Added

- Everything.
"""


def test_a_changelog_of_the_form_has_no_faults() -> None:
    assert list(changelog.form_faults(FORM)) == []


FAULTS = {
    "nothing on top": ("## Unreleased\n\n### Fixed", "## 0.3.0 - 2027-02-01\n\n### Fixed", "first"),
    "no date": ("## 0.1.0 - 2026-11-28", "## 0.1.0", "`## 0.1.0`: write `## VERSION -"),
    "a date alone": ("## 0.1.0 - 2026-11-28", "## 2026-11-28", "write `## VERSION -"),
    "another heading": ("### Fixed", "### 2026-11-28", "Unreleased: `### 2026-11-28`: write each"),
    "a heading twice": ("### Security", "### Added", "0.2.0 - 2027-01-15: `### Added`: write each"),
    "no heading": ("### Fixed\n", "", "Unreleased: `- An entry that"),
    "five lines": (
        "the first.",
        "the first," + "\n  nor on the next" * 3,
        "shorten the entry to 4",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_another_form_is_refused_with_the_form_to_write(fault: str) -> None:
    old, new, sentence = FAULTS[fault]
    assert old in FORM
    (printed,) = changelog.form_faults(FORM.replace(old, new, 1))
    assert sentence in printed


def test_an_entry_of_many_lines_is_one_fault() -> None:
    long = FORM.replace("the first.", "the first," + "\n  nor on the next," * 5)
    assert len(list(changelog.form_faults(long))) == 1


def test_notes_are_the_text_of_the_version_alone() -> None:
    assert changelog.notes(FORM, "0.1.0") == "### Added\n\n- Everything."
    assert changelog.notes(FORM, "0.2.0").startswith("Read this first.\n\n### Added")
    assert "Everything" not in changelog.notes(FORM, "0.2.0")


def test_a_version_without_a_section_has_no_notes() -> None:
    assert changelog.notes(FORM, "0.3.0") == ""
    assert changelog.notes(FORM, "0.1") == ""
    assert changelog.notes(FORM, "Unreleased") == ""
