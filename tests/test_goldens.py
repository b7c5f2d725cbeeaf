# SPDX-License-Identifier: Apache-2.0
"""The golden files' own rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens import Goldens


def test_the_same_labels_pass(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("k=1\nl=\n")

    Goldens(root=tmp_path, update=False).check_labels("a", {"l": "", "k": "1"})


def test_another_value_fails_and_is_written_on_request(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("k=1\n")

    with pytest.raises(AssertionError, match="differs"):
        Goldens(root=tmp_path, update=False).check_labels("a", {"k": "2"})
    Goldens(root=tmp_path, update=True).check_labels("a", {"k": "2"})

    assert (tmp_path / "a").read_text() == "k=2\n"


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("labels", [{}, {"k": "1", "new": "2"}, {"other": "1"}])
def test_other_keys_fail_even_when_an_update_is_asked_for(
    tmp_path: Path, labels: dict[str, str], update: bool
) -> None:
    (tmp_path / "a").write_text("k=1\n")

    with pytest.raises(pytest.fail.Exception, match="by hand"):
        Goldens(root=tmp_path, update=update).check_labels("a", labels)
    assert (tmp_path / "a").read_text() == "k=1\n"


def test_a_new_file_is_written_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="does not exist"):
        Goldens(root=tmp_path, update=False).check_text("new/a", "text")
    Goldens(root=tmp_path, update=True).check_text("new/a", "text")

    assert (tmp_path / "new" / "a").read_text() == "text"
