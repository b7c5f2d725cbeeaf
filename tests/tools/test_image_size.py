# SPDX-License-Identifier: Apache-2.0
"""Sizes of the image's parts: which file counts for which part, and the page."""

from __future__ import annotations

import ast
import gzip
import io
import tarfile
from pathlib import Path, PurePath

import pytest

from tests.deploy.dockerfile import REPOSITORY
from tools import image_root, image_size

SITE = "usr/local/lib/python3.11/site-packages"
DISTRIBUTIONS = {"yaml": ["PyYAML"], "_cffi_backend": ["cffi"], "pynvml": ["nvidia-ml-py"]}
OWNERS = {
    f"{SITE}/yaml/reader.py": "pyyaml",
    f"{SITE}/pyyaml-6.0.3.dist-info/METADATA": "pyyaml",
    f"{SITE}/_cffi_backend.cpython-311-x86_64-linux-gnu.so": "cffi",
    f"{SITE}/__pycache__/pynvml.cpython-311.pyc": "nvidia-ml-py",
    f"{SITE}/nvidia_ml_py-13.615.71.dist-info/METADATA": "nvidia-ml-py",
    f"{SITE}/agent/tick.py": "gpuscape",
    "usr/local/lib/python3.11/json/decoder.py": "standard library",
    "usr/local/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so": "standard library",
    "usr/local/lib/libpython3.11.so.1.0": "interpreter",
    "usr/local/bin/python3.11": "interpreter",
    "usr/local/bin/gpuscape": "others",
    "usr/lib/x86_64-linux-gnu/libc.so.6": "system: libc.so.6",
    "etc/passwd": "others",
}
LEFT_OUT = {**image_root.FILES_LEFT_OUT, **image_root.PACKAGES_LEFT_OUT}
PRODUCT = [
    file
    for line in (REPOSITORY / "deploy/image/Dockerfile").read_text().splitlines()
    if line.startswith("COPY ") and "." not in line
    for file in (REPOSITORY / line.split()[1]).rglob("*.py")
]
IMPORT_NAMES = {
    "aiohttp-retry": "aiohttp_retry",
    "markdown-it-py": "markdown_it",
    "python-dateutil": "dateutil",
    "websocket-client": "websocket",
}
"""Under which name a package that the image lacks would be imported, where that is another one."""


@pytest.mark.parametrize("file", OWNERS)
def test_a_file_counts_for_the_part_that_brings_it(file: str) -> None:
    assert image_size.part_name(PurePath(file), DISTRIBUTIONS) == OWNERS[file]


def test_every_file_is_in_one_part_and_parts_are_sorted_by_their_packed_size(
    tmp_path: Path,
) -> None:
    for number, file in enumerate(OWNERS):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(bytes(range(256)) * number * 50)
    (tmp_path / "usr/lib/libc.so").symlink_to("libc.so.6")

    parts = image_size.parts(tmp_path, DISTRIBUTIONS)

    files = [file for file in tmp_path.rglob("*") if file.is_symlink() or file.is_file()]
    assert sum(part.size_bytes for part in parts) == sum(file.lstat().st_size for file in files)
    packed = [part.compressed_bytes for part in parts]
    assert packed == sorted(packed, reverse=True)
    assert {part.name for part in parts} == {*OWNERS.values(), "system: libc.so"}


def test_a_layer_is_measured_as_gzip_packs_a_tar_of_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_bytes(bytes(100_000))
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as layer:
        layer.add(tmp_path / "folder", arcname="folder")
    expected = len(gzip.compress(tar.getvalue(), 6))
    measured = image_size.compressed_bytes(tmp_path, tmp_path.rglob("*"))
    assert measured == pytest.approx(expected, abs=20)


def test_the_page_has_each_part_and_each_thing_that_is_left_out() -> None:
    large = image_size.Part(name="grpcio", size_bytes=19_000_000, compressed_bytes=7_500_000)
    small = [
        image_size.Part(name=name, size_bytes=30_000, compressed_bytes=10_000) for name in "ab"
    ]
    page = image_size.page([large, *small], 7_560_000)
    assert "**7.6 MB**" in page
    assert "| grpcio | 19.00 | 7.50 |" in page
    assert "| 2 smaller parts | 0.06 | 0.02 |" in page
    for name, why in LEFT_OUT.items():
        assert f"| `{name}` | {why} |" in page


def test_the_written_page_is_within_the_limit_and_names_what_is_left_out_now() -> None:
    assert image_size.written() <= image_size.LIMIT_MEGABYTES
    page = image_size.PAGE.read_text()
    assert [name for name, why in LEFT_OUT.items() if f"| `{name}` | {why} |" not in page] == []


def test_no_module_imports_what_the_image_leaves_out() -> None:
    """Nor within a function; tests/node/test_image_parts.py tries it in the image."""
    packages = {IMPORT_NAMES.get(name, name) for name in image_root.PACKAGES_LEFT_OUT}
    files = {name.rstrip("/").removesuffix(".py") for name in image_root.FILES_LEFT_OUT}
    absent = packages | {file.replace("/", ".") for file in files} | {"sqlite3", "curses", "dbm"}
    imports = {
        (file.name, name)
        for file in PRODUCT
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        for name in _names(node)
    }
    assert ("official.py", "kubernetes.client.rest") in imports
    found = {(file, name) for file, name in imports if f"{name}.".startswith(_dotted(absent))}
    assert found == set()


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _dotted(names: set[str]) -> tuple[str, ...]:
    return tuple(f"{name}." for name in names)
