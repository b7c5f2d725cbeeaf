# SPDX-License-Identifier: Apache-2.0
"""The pictures of the pages: what commands print, and how GPUs of a machine are linked.

Each is made from the product's own output and is the same each time; ``make docs`` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from itertools import combinations
from typing import Final

from click.testing import CliRunner

from agent.settings.agent_settings import AgentSettings
from agent.single_reading import take_snapshot
from api.topology_annotation import TopologyAnnotation
from cli.main import main as gpuscape
from labelers.annotations import topology_of
from tools.explained import explained
from tools.terminal_svg import terminal_svg

FOLDER: Final = "docs/pictures"
COMMANDS: Final[Mapping[str, str]] = {
    "topo": "topo --simulate dgx1-v100",
    "discover": "discover --simulate hgx-h100-mig-mixed",
}
"""Picture to the command that prints it."""
LABELS: Final = "labels --simulate a30-pair"
OWN_LABELS: Final = "gpuscape.io/"
GRAPHS: Final = {"links-mesh": "dgx1-v100", "links-pairs": "a100-pcie-pairs"}
"""Picture to the machine whose links it shows."""
_COLOURS: Final = {"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": None, "COLORTERM": None}
_MOST_LINES: Final = 3
"""Lines between two GPUs at most: more would be one thick line."""
_WIDTH, _HEIGHT, _RADIUS, _GPU = 460, 400, 140, 26


def files() -> Mapping[str, str]:
    """Each picture by its path from the root."""
    shown = {
        **{name: terminal(words, printed(words)) for name, words in COMMANDS.items()},
        "labels": terminal(f"{LABELS} | grep {OWN_LABELS}", own_labels()),
        "explain": terminal("scheduler explain train-0", explained()),
        **{name: links_svg(machine) for name, machine in GRAPHS.items()},
    }
    return {f"{FOLDER}/{name}.svg": svg for name, svg in shown.items()}


def terminal(words: str, output: str) -> str:
    """The picture of a command and its output."""
    return terminal_svg(f"$ gpuscape {words}\n{output}", title="gpuscape")


def printed(words: str) -> str:
    """What a command prints to a terminal, with its colours."""
    result = CliRunner().invoke(gpuscape, words.split(), env=_COLOURS)
    if result.exit_code:
        raise SystemExit(f"gpuscape {words} failed: {result.output}")
    return result.output


def own_labels() -> str:
    """Labels of a machine that only gpuscape writes."""
    result = CliRunner().invoke(gpuscape, LABELS.split())
    return "\n".join(line for line in result.output.splitlines() if line.startswith(OWN_LABELS))


def links_svg(machine: str) -> str:
    """The GPUs of a machine on a circle, a line for each NVLink between two of them."""
    topology = topology_of(take_snapshot(replace(AgentSettings(), simulate=machine)))
    places = [
        (_WIDTH / 2 + _RADIUS * math.sin(turn), _HEIGHT / 2 - _RADIUS * math.cos(turn))
        for turn in (2 * math.pi * number / topology.n for number in range(topology.n))
    ]
    title = f"{machine}: {topology.n} GPUs, a line for each NVLink"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="#1b1f27"/>',
        '<g stroke="#a5d76e" stroke-width="2.5">',
    ]
    for (first, second), links in linked(topology).items():
        drawn += _lines(places[first], places[second], min(links, _MOST_LINES))
    drawn.append('</g><g font-family="sans-serif" font-size="15" text-anchor="middle">')
    for number, (x, y) in enumerate(places):
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_GPU}" fill="#74b2f0"/>')
        drawn.append(f'<text x="{x:.1f}" y="{y + 5:.1f}" fill="#1b1f27">GPU{number}</text>')
    drawn.append(
        f'<text x="{_WIDTH / 2:g}" y="{_HEIGHT - 14}" fill="#d5d9e0">{escape(title)}</text>'
    )
    return "\n".join([*drawn, "</g>", "</svg>"]) + "\n"


def linked(topology: TopologyAnnotation) -> Mapping[tuple[int, int], int]:
    """Pairs of GPUs to their NVLinks, where there are any."""
    pairs = combinations(range(topology.n), 2)
    counts = {pair: int(links, 36) for pair, links in zip(pairs, topology.nv, strict=True)}
    return {pair: links for pair, links in counts.items() if links}


def _lines(start: tuple[float, float], end: tuple[float, float], count: int) -> list[str]:
    """Parallel lines between two places."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1)
    right, down = (y2 - y1) / length, (x1 - x2) / length
    apart = [6 * (number - (count - 1) / 2) for number in range(count)]
    return [
        f'<line x1="{x1 + right * offset:.1f}" y1="{y1 + down * offset:.1f}"'
        f' x2="{x2 + right * offset:.1f}" y2="{y2 + down * offset:.1f}"/>'
        for offset in apart
    ]
