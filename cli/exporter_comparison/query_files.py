# SPDX-License-Identifier: Apache-2.0
"""Files with dashboards and rules, read within bounds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from base.errors import BadInput
from base.files import read_text
from exporters.queries.judged_queries import Query
from exporters.queries.query_documents import MOST_BYTES, queries_of

SUFFIXES: Final = (".json", ".yaml", ".yml")
MOST_FILES: Final = 2000
MOST_QUERIES: Final = 50_000


def read_queries(option: str, paths: Sequence[Path]) -> list[Query]:
    """All queries in these files and folders, which ``option`` named.

    Raises BadInput for a file that cannot be read, for a link out of its folder, beyond a bound,
    and where a path has no query at all.
    """
    queries: list[Query] = []
    for path in paths:
        before = len(queries)
        for file in _files(option, path):
            name = str(file.relative_to(path)) if path.is_dir() else file.name
            queries += queries_of(read_text(file, most_bytes=MOST_BYTES), name)
            if len(queries) > MOST_QUERIES:
                raise BadInput(f"{option}: more than {MOST_QUERIES} queries: name fewer files")
        if len(queries) == before:
            raise BadInput(f"{option}: {path} has no query: expected dashboards or rules in it")
    return queries


def _files(option: str, path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(_below(path))
    if len(files) > MOST_FILES:
        raise BadInput(f"{option}: {path} has more than {MOST_FILES} files: name a folder in it")
    root = path.resolve()
    for file in files:
        if not file.resolve().is_relative_to(root):
            raise BadInput(f"{option}: {file} is a link out of the folder: name what it points to")
    return files


def _below(path: Path) -> Iterator[Path]:
    """Files of a folder; hidden ones, and the copies that a mounted ConfigMap has, left out."""
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(SUFFIXES) and not name.startswith("."):
                yield Path(folder, name)
