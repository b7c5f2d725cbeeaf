# SPDX-License-Identifier: Apache-2.0
"""Figures for the README, read from the pages that the benchmarks write."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

_DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
_FLEET: Final = {"fleet": "10*dgx1-v100+14*hgx-h100", "mix": "usual", "load": "0.5", "gpus": "4"}
_ARMS: Final = {"gpuscape": "lag 0 s", "packed": "bin-pack", "spread": "spread"}
_EXPORTERS: Final = ("benchmarks.md", "Beside other exporters, on a DGX A100")
_FAULTS: Final = ("benchmarks.md", "Faults")
_LINE: Final = """\
- **Pods of four GPUs have {gpuscape} of the bandwidth of the fleet's best four** in a fleet of ten
  DGX-1 and fourteen H100 servers, half in use; {packed} where the scheduler fills nodes, {spread}
  where it spreads pods: [where pods land](docs/scheduler-quality.md).
- **A GPU that hangs shows {shown} later**, and no scrape takes longer than {slowest} meanwhile:
  [faults](docs/benchmarks.md#faults).
- **{ours} for a scrape** of eight A100 in 56 parts (MIG devices); {client} with
  `prometheus_client`, {nvitop} from nvitop-exporter: [side by side in one run](docs/benchmarks.md).
"""


def figures() -> str:
    """The README's figures, each with a link to the page that measured it."""
    return _LINE.format(
        **{name: _speed(arm) for name, arm in _ARMS.items()},
        shown=cell(*_FAULTS, "one GPU hangs, SIGTERM does not end it").partition(" / ")[0],
        slowest=cell(*_FAULTS, "slowest scrape with its liveness probe meanwhile"),
        ours=cell(*_EXPORTERS, "one scrape", "gpuscape"),
        client=cell(*_EXPORTERS, "one scrape", "prometheus_client"),
        nvitop=cell(*_EXPORTERS, "one scrape", "nvitop"),
    ).strip()


def _speed(arm: str) -> str:
    """Mean bandwidth of a scheduler's pods, as a share of the fleet's best. Raises SystemExit."""
    with (_DOCS / "scheduler-quality.csv").open(encoding="utf-8", newline="") as lines:
        wanted = _FLEET | {"arm": arm}
        for row in csv.DictReader(lines):
            if wanted.items() <= row.items():
                return f"{float(row['speed']):.0%}".replace("%", " %")
    raise SystemExit(f"docs/scheduler-quality.csv has no row of {wanted}")


def cell(page: str, heading: str, row: str, column: str = "") -> str:
    """A cell of the table below the heading that begins so; the first of a row without a column.

    Raises SystemExit where the page has none.
    """
    _, _, after = (_DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}")
    section = after.partition("\n## ")[0]
    header, *rows = [
        [text.strip() for text in line.strip()[1:-1].split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ] or [[]]
    for name, *cells in rows:
        if name == row and column in header[1:]:
            return cells[header[1:].index(column)]
    raise SystemExit(f"docs/{page} has no {column!r} of {row!r} below {heading!r}")
