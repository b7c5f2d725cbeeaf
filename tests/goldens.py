# SPDX-License-Identifier: Apache-2.0
"""Golden files: what is put out for known input, kept to be reviewed as a diff.

``pytest --update-golden`` writes new files and new values. It never adds or removes
a key of an existing file: keys are a promise to users, so such a change is made by
hand, in the file itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Goldens:
    """The golden files below ``root``; ``update`` is the command line's flag."""

    root: Path
    update: bool

    def check_labels(self, name: str, labels: Mapping[str, str]) -> None:
        """Fail unless the file ``name`` holds these labels as sorted ``key=value`` lines."""
        path = self.root / name
        if path.exists():
            _same_keys(path, labels)
        self.check_text(name, "".join(f"{key}={text}\n" for key, text in sorted(labels.items())))

    def check_text(self, name: str, text: str) -> None:
        """Fail unless ``text`` is what the file ``name`` holds."""
        path = self.root / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        if not path.exists():
            pytest.fail(f"{path} does not exist; write it with --update-golden")
        assert text == path.read_text("utf-8"), f"{path} differs; review it with --update-golden"


def _same_keys(path: Path, labels: Mapping[str, str]) -> None:
    before = {line.partition("=")[0] for line in path.read_text("utf-8").splitlines()}
    if before != labels.keys():
        new, gone = sorted(labels.keys() - before), sorted(before - labels.keys())
        pytest.fail(f"{path}: new keys {new}, gone keys {gone}; change the file's keys by hand")
