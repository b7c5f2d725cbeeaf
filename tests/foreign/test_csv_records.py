# SPDX-License-Identifier: Apache-2.0
"""Our reader of counters files next to the one that dcgm-exporter has: Go's encoding/csv."""

from __future__ import annotations

import base64
import itertools
import json
import random
import subprocess
from collections.abc import Callable, Iterable, Iterator

import pytest

from exporters.dcgm.csv_records import MOST_RECORD_BYTES, records
from tests.controlplane.builds import binaries
from tests.controlplane.families import CSV_READER

pytestmark = pytest.mark.cluster

SIGNS = (b'"', b",", b"\n", b"\r", b"#", b"a")
PARTS = (*SIGNS, b'""', b"\r\n", b" ", b'",', b',"', b"\xff", b"\xc3\xa9", b"\0", b"\t", b"\\")

Reading = tuple[list[tuple[int, list[bytes]]], int]
"""Records up to the first fault, each with its first line, and the line of the fault, else 0."""


def _short() -> Iterator[bytes]:
    """Every text of up to six signs that mean something in CSV."""
    for length in range(7):
        yield from map(b"".join, itertools.product(SIGNS, repeat=length))


def _long() -> Iterator[bytes]:
    """Hostile texts, the same in each run."""
    chosen = random.Random(20261128)  # noqa: S311  # no secret
    for _ in range(20_000):
        yield b"".join(chosen.choices(PARTS, k=chosen.randrange(7, 60)))


def _by_go(texts: Iterable[bytes]) -> list[Reading]:
    done = subprocess.run(
        [binaries(CSV_READER) / "csv-reader"],
        input="".join(f"{base64.b64encode(text).decode()}\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
    )
    return [_of_go(json.loads(line)) for line in done.stdout.splitlines()]


def _of_go(found: dict[str, object]) -> Reading:
    listed = found["records"]
    assert isinstance(listed, list)
    fault = found["fault"]
    assert isinstance(fault, int)
    return [(it["line"], [base64.b64decode(each) for each in it["fields"]]) for it in listed], fault


def _by_us(text: bytes) -> Reading:
    whole: list[tuple[int, list[bytes]]] = []
    for record in records(text, most_lines=1 << 20):
        if record.fault:
            return whole, record.line
        whole.append((record.line, list(record.fields)))
    return whole, 0


@pytest.mark.parametrize("texts", [_short, _long], ids=["every short text", "long texts"])
def test_records_lines_and_the_first_fault_are_those_of_go(
    texts: Callable[[], Iterator[bytes]],
) -> None:
    every = list(texts())
    assert max(map(len, every)) < MOST_RECORD_BYTES

    theirs = _by_go(every)

    assert len(theirs) == len(every)
    different = [text for text, go in zip(every, theirs, strict=True) if _by_us(text) != go]
    assert different == []


def test_both_readings_have_records_and_faults() -> None:
    """What the comparison rests on."""
    assert _by_go([b'#\n\na,"b\nc""d"\r\n', b'a\nb"']) == [
        ([(3, [b"a", b'b\nc"d'])], 0),
        ([(1, [b"a"])], 2),
    ]
