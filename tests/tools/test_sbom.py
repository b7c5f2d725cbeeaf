# SPDX-License-Identifier: Apache-2.0
"""The bill of materials, of a root with the packages of the lock file and nothing built.

``tests/node/test_image_twice.py`` has the image's own, which takes minutes.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

from tests.tools.bills import fault, packages, pinned
from tools import sbom


def with_packages(root: Path, names: Iterable[str]) -> Path:
    """A root with what each says of itself, as installed here, and a program of nobody's."""
    site = root / "usr/local/lib/python3/site-packages"
    for name in names:
        about = metadata.distribution(name)
        folder = site / f"{about.name}-{about.version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(about.read_text("METADATA") or "", encoding="utf-8")
    (root / "usr/bin").mkdir()
    shutil.copy2(Path(sys.executable).resolve(), root / "usr/bin/program")
    (root / "usr/bin/script").write_text("#!/usr/bin/program\n")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """With gpuscape and all that its lock file has."""
    return with_packages(tmp_path / "one", (sbom.APPLICATION, *pinned()))


def test_a_bill_lists_each_pinned_package_once_and_keeps_the_published_schema(root: Path) -> None:
    bill = sbom.bill(root)

    assert fault(bill) is None
    assert len(pinned()) > 10
    assert packages(bill) == pinned()
    assert bill["metadata"]["component"]["name"] == sbom.APPLICATION
    references = [it["bom-ref"] for it in bill["components"]]
    assert references == sorted(set(references))


def test_programs_are_listed_by_their_hash_and_scripts_are_not(root: Path) -> None:
    files = {it["name"]: it for it in sbom.bill(root)["components"] if it["type"] == "file"}

    assert files.keys() == {"/usr/bin/program"}
    (digest,) = files["/usr/bin/program"]["hashes"]
    assert re.fullmatch(r"[0-9a-f]{64}", digest["content"])


def test_neither_place_nor_order_of_installing_shows(root: Path, tmp_path: Path) -> None:
    other = with_packages(tmp_path / "other", reversed((sbom.APPLICATION, *pinned())))

    assert json.dumps(sbom.bill(root)) == json.dumps(sbom.bill(other))


def test_a_root_without_gpuscape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no installed gpuscape: make it by tools/image_root\.py"):
        sbom.bill(tmp_path)
