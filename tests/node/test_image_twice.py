# SPDX-License-Identifier: Apache-2.0
"""The image twice, from two folders at two times: the same bytes; and what is in it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import dockerfile
from tests.node import images
from tests.tools import bills
from tools import image_size

PAGE_TOLERANCE_MEGABYTES = 2
"""Between docs/image.md and this build: of another machine, and of later changes."""


def layer(root: Path, folder: Path) -> bytes:
    """The one layer of the image that is made of ``root``."""
    file = images.write(folder / "image.tar", "example/gpuscape:1", root, {})
    with tarfile.open(file) as tar:
        largest = max(tar, key=lambda it: it.size)
        content = tar.extractfile(largest)
        assert content is not None
        return content.read()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_builds_give_the_same_bytes_and_a_bill_of_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, texts = [], []
    for name, umask in (("first", 0o022), ("in-another-folder", 0o077)):
        folder = tmp_path / name
        before = os.umask(umask)
        try:
            folder.mkdir()
            monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
            monkeypatch.setenv("PYTHONHASHSEED", str(umask))
            root = dockerfile.build(folder)
            layers.append(layer(root, folder))
        finally:
            os.umask(before)
        texts.append((folder / dockerfile.BILL.lstrip("/")).read_text())

    first, second = layers
    with (
        tarfile.open(fileobj=io.BytesIO(first)) as one,
        tarfile.open(fileobj=io.BytesIO(second)) as other,
    ):
        assert [differs(*pair, one, other) for pair in zip(one, other, strict=True)] == [
            "" for _ in one.getmembers()
        ]
        files = {it.name.removeprefix("."): it for it in one}
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()
    assert {it.mtime for it in files.values()} == {1790000000}
    assert texts[0] == texts[1]
    megabytes = len(gzip.compress(first, image_size.GZIP_LEVEL, mtime=0)) / image_size.MEGABYTE
    assert megabytes <= image_size.LIMIT_MEGABYTES
    assert megabytes == pytest.approx(image_size.written(), abs=PAGE_TOLERANCE_MEGABYTES)
    judge(json.loads(texts[0]), set(files))


def differs(one: tarfile.TarInfo, other: tarfile.TarInfo, *tars: tarfile.TarFile) -> str:
    """The name of a file that is not the same in both; empty when it is."""
    about = [(it.name, it.mode, it.mtime, it.size, it.linkname) for it in (one, other)]
    contents = [
        tar.extractfile(it).read() if it.isreg() else b""  # type: ignore[union-attr]
        for tar, it in zip(tars, (one, other), strict=True)
    ]
    return "" if about[0] == about[1] and contents[0] == contents[1] else f"{about}"


def judge(bill: dict[str, Any], files: set[str]) -> None:
    """By the published schema, by the lock file, and by what is in the image."""
    assert bills.fault(bill) is None
    parts = bill["components"]
    versions, pinned = bills.packages(bill), bills.pinned()
    assert versions
    assert versions == {name: pinned[name] for name in versions}
    about = {name for name in files if re.search(r"/site-packages/[^/]+\.dist-info$", name)}
    assert len(versions) + 1 == len(about)
    places = {it["name"] for it in parts if it["type"] == "file"}
    assert places <= files
    libraries = {it for it in files if re.search(r"\.so(\.\d+)*$", it)} - {
        it for it in files if "/site-packages/" in it
    }
    assert libraries <= places
    assert any(it["type"] == "platform" and it["name"] == "python" for it in parts)
