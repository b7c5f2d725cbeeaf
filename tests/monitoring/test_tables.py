# SPDX-License-Identifier: Apache-2.0
"""What table panels show, made of real answers by Grafana's own code."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.controlplane.families import GRAFANA
from tests.monitoring import shipped
from tests.monitoring.grafana import Table, tables
from tests.monitoring.prometheus import Prometheus, Series
from tests.monitoring.shipped import CHOSEN, filled

pytestmark = pytest.mark.cluster

GPUS = [str(index) for index in range(16)]
PANELS = {
    f"{uid}: {panel['title']}": panel
    for uid, dashboard in shipped.dashboards().items()
    for panel in shipped.panels(dashboard)
    if panel["type"] == "table"
}
MATRICES = {
    name.removeprefix("gpuscape-node: "): panel
    for name, panel in PANELS.items()
    if "to_00" in json.dumps(panel["transformations"])
}


def titles(panel: Mapping[str, Any]) -> dict[str, str]:
    """Label or value to the heading of its column, in the order that they are to have."""
    organized = [it["options"] for it in panel["transformations"] if it["id"] == "organize"]
    headings = {name: it for each in organized for name, it in each["renameByName"].items()}
    places = {name: at for each in organized for name, at in each.get("indexByName", {}).items()}
    return {name: headings[name] for name in sorted(headings, key=lambda it: places.get(it, 0))}


@pytest.fixture(scope="module")
def shown(prometheus: Prometheus) -> Mapping[str, Table]:
    """Every table of every dashboard; what has a row for each GPU of the node with 16."""
    asked = []
    for name, panel in PANELS.items():
        one = {"$instance": "hgx16-0"} if name.startswith("gpuscape-node") else {}
        chosen = CHOSEN | (one if panel in MATRICES.values() or "index" in titles(panel) else {})
        at = time.time()  # one for all queries of a panel, as Grafana asks
        expressions = [filled(target["expr"], chosen) for target in panel["targets"]]
        asked.append((panel, [prometheus.query(it, at=at) for it in expressions]))
    return dict(zip(PANELS, tables(asked), strict=True))


def shuffled(panel: Mapping[str, Any], answer: Sequence[Series]) -> Table:
    """What it shows of an answer in whatever order."""
    mixed = random.Random(16).sample(answer, len(answer))  # noqa: S311  # no secret
    (found,) = tables([(panel, [mixed])])
    return found


def rows(number: Callable[[str, str], int | None]) -> list[Series]:
    """A matrix of the GPUs: what is in the row of one and the column of another, if anything."""
    return [
        Series(labels={"index": gpu} | dict(_cells(gpu, number)), points=((1.7e9, 1),))
        for gpu in GPUS
    ]


def _cells(gpu: str, number: Callable[[str, str], int | None]) -> Iterator[tuple[str, str]]:
    for peer in GPUS:
        if peer != gpu and (found := number(gpu, peer)) is not None:
            yield f"to_{int(peer):02}", str(found)


def test_numbers_that_name_something_are_not_shortened(shown: Mapping[str, Table]) -> None:
    """Grafana's short unit makes 20.0 K of the code 20034."""
    (codes,) = (it for it in shown["gpuscape-node: NVSwitch errors"] if it.name == "SXid")

    assert codes.texts == ("20034",)


@pytest.mark.parametrize("title", ["NVLinks between GPUs", "PCIe between GPUs"])
def test_gpus_of_a_matrix_are_in_the_order_of_their_numbers(
    shown: Mapping[str, Table], title: str
) -> None:
    corner, *columns = shown[f"gpuscape-node: {title}"]

    assert corner.texts == tuple(GPUS)
    assert [column.name for column in columns] == GPUS


@pytest.mark.parametrize("title", ["NVLinks between GPUs", "PCIe between GPUs"])
def test_a_pair_without_a_value_leaves_the_others_in_order(title: str) -> None:
    missing = {("0", "3"), ("3", "0"), ("0", "11"), ("11", "0")}

    corner, *columns = shuffled(
        MATRICES[title], rows(lambda a, b: None if (a, b) in missing else 1)
    )

    assert corner.texts == tuple(GPUS)
    assert [column.name for column in columns] == GPUS
    assert columns[3].texts[0] == columns[3].texts[3] == "·" != columns[3].texts[1]


@pytest.mark.parametrize(
    "nics",
    [
        [f"mlx5_{number}" for number in range(12)],
        ["ibp24s0", "ibp64s0", "ibp79s0", "ibp94s0", "ibp154s0", "ibp192s0", "ibp206s0"],
    ],
)
def test_nics_are_in_the_order_of_the_numbers_in_their_names(
    prometheus: Prometheus, nics: list[str]
) -> None:
    """The query takes the numbers out of names, so Prometheus is asked to."""
    panel = MATRICES["NICs"]
    expression = filled(panel["targets"][0]["expr"])
    inner = 'gpuscape_topology_nic_row{cluster=~".*", instance=~".*"}'
    assert inner in expression
    named = " or ".join(
        f'label_replace(label_replace(vector(1), "nic", "{nic}", "", ""), "to_00", "4", "", "")'
        for nic in nics
    )

    corner, cells = shuffled(panel, prometheus.query(expression.replace(inner, f"({named})")))

    assert list(corner.texts) == nics
    assert set(cells.texts) == {"NODE"}


def test_words_stand_in_place_of_levels_and_not_of_gpus(shown: Mapping[str, Table]) -> None:
    corner, *columns = shown["gpuscape-node: PCIe between GPUs"]

    assert corner.texts == tuple(GPUS)
    words = {text for column in columns for text in column.texts}
    assert "SYS" in words
    assert words <= {"·", "board", "PIX", "PXB", "PHB", "NODE", "SYS"}
    assert [column.texts[at] for at, column in enumerate(columns)] == ["·"] * 16


def test_the_numbers_of_gpus_do_not_count_for_the_colours_of_a_matrix() -> None:
    """The most links of any pair have the strongest colour, be there more GPUs than links."""
    panel = MATRICES["NVLinks between GPUs"]

    corner, first, *_ = shuffled(panel, rows(lambda a, b: 4 if {a, b} <= {"0", "1"} else 2))
    most = Series(labels={"index": "1", "to_00": "9"}, points=((1.7e9, 1),))
    (strongest,) = shuffled(panel, [most])[1].colors

    assert first.colors[1] == strongest != first.colors[2]
    assert not corner.is_colored
    assert first.is_colored


@pytest.mark.parametrize("name", [it for it in PANELS if "index" in titles(PANELS[it])])
def test_gpus_of_a_table_are_in_the_order_of_their_numbers(
    shown: Mapping[str, Table], name: str
) -> None:
    """Node by node, where it has several."""
    texts = {column.name: column.texts for column in shown[name]}
    nodes = texts.get("Node", ("",) * len(texts["GPU"]))
    rows = [(node, int(gpu)) for node, gpu in zip(nodes, texts["GPU"], strict=True)]

    assert len(rows) > 2
    assert rows == sorted(rows)


@pytest.mark.parametrize("name", [it for it in PANELS if PANELS[it] not in MATRICES.values()])
def test_columns_of_a_table_are_those_declared_in_that_order(
    shown: Mapping[str, Table], name: str
) -> None:
    """Grafana leaves out a label that no series has."""
    found = [column.name for column in shown[name]]

    assert found == [title for title in titles(PANELS[name]).values() if title in found]
    assert len(found) > 1


def test_the_numbers_of_gpus_do_not_count_for_the_length_of_bars() -> None:
    answer = [Series(labels={"gpu": gpu}, points=((1.7e9, 0.5),)) for gpu in GPUS]
    (found,) = tables([(PANELS["gpuscape-node: Energy"], [answer])])

    assert found[1].texts == ("500 Wh",) * 16
    assert found[1].most == 0.5


def test_the_lock_file_has_hashes_and_no_address() -> None:
    text = (GRAFANA.folder / "package-lock.json").read_text("utf-8")
    packages = json.loads(text)["packages"]

    assert all("integrity" in it for name, it in packages.items() if name)
    assert not re.search(r"resolved|https?:|\.(org|com|io|dev)\b", text)


def test_a_transformation_that_grafana_does_not_have_is_an_error() -> None:
    """Grafana passes it over without a word."""
    panel = {**MATRICES["NICs"], "transformations": [{"id": "sortByNumber", "options": {}}]}

    with pytest.raises(AssertionError, match="no transformation: sortByNumber"):
        tables([(panel, [[]])])
