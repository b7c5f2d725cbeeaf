# SPDX-License-Identifier: Apache-2.0
"""The topology annotation as it is written, read, and refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import topology_annotation
from api.fabric_kind import FabricKind
from api.topology_annotation import decode, generation, json_schema
from base.errors import BadInput
from discovery.model import GpuSnapshot, Nic, NodeSnapshot, NvLink, Topology
from discovery.nvml_terms import LinkPeer
from labelers.annotations import topology_of
from tests import build

KEYS = ["v", "gen", "n", "fab", "lbw", "nv", "pc", "numa", "ids", "bus", "nic"]
NVLINK4 = 26_562_000_000
SWITCHED = NvLink(link=0, active=True, peer=LinkPeer.SWITCH, bytes_per_second=NVLINK4)


def square(n: int, upper: dict[tuple[int, int], int | None], rest: int = 0) -> Any:
    """A symmetric matrix with zero diagonal from its upper triangle."""
    return tuple(
        tuple(0 if i == j else upper.get((min(i, j), max(i, j)), rest) for j in range(n))
        for i in range(n)
    )


def node(gpus: list[GpuSnapshot], nics: tuple[Nic, ...] = (), **links: Any) -> NodeSnapshot:
    """A node whose topology is only what is named."""
    plain = build.node(gpus)
    topology = Topology(
        gpus=plain.topology.gpus,
        nics=tuple(nic.name for nic in nics),
        **{
            "nvlinks": plain.topology.nvlinks,
            "pcie": square(len(gpus) + len(nics), {}, 5),
            **links,
        },
    )
    return replace(plain, host=replace(plain.host, nics=nics), topology=topology)


def switched(n: int = 8, nics: int = 0) -> NodeSnapshot:
    """GPUs with 18 links each through NVSwitch, half of them on each of two NUMA nodes."""
    return node(
        [build.gpu(at, numa_node=at * 2 // n, links=(SWITCHED,)) for at in range(n)],
        tuple(Nic(name=f"mlx5_{k}", bus_id=f"0000:{0xC0 + k:02x}:00.0") for k in range(nics)),
        kind=FabricKind.SWITCH,
        nvlinks=square(n, {}, 18),
    )


def encode(snapshot: NodeSnapshot) -> str:
    """The text that the agent writes for it."""
    return topology_annotation.encode(topology_of(snapshot))


def changed(text: str, **keys: Any) -> str:
    """The annotation with these keys set; a key set to ``...`` is left out."""
    content = json.loads(text) | keys
    return json.dumps({key: value for key, value in content.items() if value is not ...})


def test_the_keys_and_their_shapes_are_the_published_ones() -> None:
    """Three GPUs: 0 and 1 share a switch and four links, of which one is down at one end."""
    gpus = [build.gpu(at, numa_node=numa) for at, numa in enumerate((0, 0, None))]
    gpus[0] = build.changed(gpus[0], links=(replace(SWITCHED, bytes_per_second=25_781_000_000),))
    seen = node(
        gpus,
        (Nic(name="mlx5_0", bus_id="0000:18:00.0"),),
        kind=FabricKind.BRIDGE,
        nvlinks=((0, 4, 0), (3, 0, 0), (0, 0, 0)),
        pcie=((0, 1, 4, 1), (1, 0, 3, 2), (4, 3, 0, 5), (1, 2, 5, 0)),
    )

    content = json.loads(encode(seen))

    assert len(content.pop("gen")) == 10
    assert content == {
        "v": 1,
        "n": 3,
        "fab": "bridge",
        "lbw": [25],
        "nv": "300",
        "pc": "143",
        "numa": [0, 0, -1],
        "ids": [gpu.uuid for gpu in gpus],
        "bus": ["0000:10:00.0", "0000:11:00.0", "0000:12:00.0"],
        "nic": [["mlx5_0", "0000:18:00.0", "125"]],
    }


def test_the_text_is_compact_and_in_a_fixed_order() -> None:
    text = encode(switched(2))

    assert text.startswith('{"v":1,"gen":"')
    assert list(json.loads(text)) == KEYS


def test_what_is_not_known_promises_nothing() -> None:
    """A lost GPU has no UUID, no links, no place."""
    gpus = [build.gpu(0), build.gpu(1, uuid=None)]
    seen = node(gpus, nvlinks=((0, None), (None, 0)), pcie=((0, None), (None, 0)))

    content = json.loads(encode(seen))

    assert (content["nv"], content["pc"], content["numa"]) == ("0", "5", [-1, -1])
    assert (content["ids"], content["lbw"]) == ([gpus[0].uuid, ""], [0])


@pytest.mark.parametrize(
    ("links", "digit"), [(0, "0"), (9, "9"), (10, "a"), (18, "i"), (36, "A"), (61, "Z"), (62, "Z")]
)
def test_link_counts_take_one_digit_and_stop_at_61(links: int, digit: str) -> None:
    text = encode(node([build.gpu(0), build.gpu(1)], nvlinks=square(2, {}, links)))
    found = decode(text)

    assert json.loads(text)["nv"] == digit
    assert found is not None
    assert found.links(0, 1) == found.links(1, 0) == min(links, 61)


def test_gpus_with_links_of_different_speed_have_one_rate_each() -> None:
    older = replace(SWITCHED, bytes_per_second=25_000_000_000)
    gpus = [build.gpu(0, links=(SWITCHED,)), build.gpu(1, links=(older,)), build.gpu(2)]

    assert json.loads(encode(node(gpus)))["lbw"] == [26, 25, 0]


def test_pairs_are_found_in_both_orders() -> None:
    pairs = {(i, j): 4 * i + j for i in range(4) for j in range(i + 1, 4)}
    levels = dict(zip(pairs, (1, 2, 3, 4, 5, 1), strict=True))
    found = decode(
        encode(
            node(
                [build.gpu(at) for at in range(4)],
                nvlinks=square(4, dict(pairs)),
                pcie=square(4, dict(levels)),
            )
        )
    )

    assert found is not None
    assert {(i, j): found.links(i, j) for i, j in pairs} == pairs
    assert {(i, j): found.level(j, i) for i, j in pairs} == levels
    assert found.links(2, 2) == found.level(2, 2) == 0
    with pytest.raises(IndexError, match="no pair"):
        found.links(0, 4)


# gen


def test_nodes_that_score_alike_share_a_gen_whatever_their_names() -> None:
    one = switched(4, nics=2)
    other = replace(
        one,
        host=replace(
            one.host,
            name="node-b",
            nics=tuple(
                replace(nic, name=f"ib{nic.name}", bus_id="0000:ff:00.0") for nic in one.host.nics
            ),
        ),
        gpus=tuple(replace(gpu, uuid=f"GPU-other-{gpu.index}") for gpu in one.gpus),
        topology=replace(one.topology, gpus=tuple(f"0001:0{i}:00.0" for i in range(4))),
    )

    assert json.loads(encode(one))["gen"] == json.loads(encode(other))["gen"]


def test_the_order_of_nics_does_not_change_the_gen() -> None:
    near, far = Nic(name="a", bus_id="0000:18:00.0"), Nic(name="b", bus_id="0000:19:00.0")

    def gen(levels: tuple[int, int]) -> str:
        pcie = ((0, *levels), (levels[0], 0, 5), (levels[1], 5, 0))
        return str(json.loads(encode(node([build.gpu(0)], (near, far), pcie=pcie)))["gen"])

    assert gen((1, 4)) == gen((4, 1)) != gen((1, 1))


@pytest.mark.parametrize(
    "key",
    [
        {"fab": "mesh"},
        {"lbw": [25]},
        {"nv": "h"},
        {"pc": "4"},
        {"numa": [0, 0]},
        {"nic": [["mlx5_0", "0000:c0:00.0", "54"]]},
    ],
    ids=lambda key: next(iter(key)),
)
def test_whatever_scoring_uses_changes_the_gen(key: dict[str, Any]) -> None:
    text = encode(switched(2, nics=1))
    before = decode(text)
    after = decode(changed(text, **key))

    assert before is not None
    assert after is not None
    assert generation(after) != generation(before) == before.gen


# size and schema


def test_sixteen_gpus_with_ten_nics_stay_within_four_kib() -> None:
    """Longest names that occur, and every rate and NUMA node different."""
    gpus = [
        build.gpu(
            at,
            uuid=f"GPU-{at:08x}-0000-0000-0000-000000000000",
            numa_node=100 + at,
            bus_id=f"1{at:04x}:00:00.0",
            links=(replace(SWITCHED, bytes_per_second=(1000 + at) * 10**9),),
        )
        for at in range(16)
    ]
    nics = tuple(Nic(name=f"rocep{k:03}s0f0np0", bus_id=f"1{k:04x}:00:00.1") for k in range(10))

    text = encode(node(gpus, nics, kind=FabricKind.SWITCH))

    assert len(text.encode()) <= 4096


@pytest.mark.parametrize("n", [0, 1, 2, 8])
def test_what_is_written_fits_the_published_schema(n: int) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)

    jsonschema.validate(json.loads(encode(switched(n, nics=2))), schema)


def test_the_published_schema_refuses_a_wrong_level() -> None:
    content = json.loads(encode(switched(2))) | {"pc": "6"}

    with pytest.raises(jsonschema.ValidationError, match="6"):
        jsonschema.validate(content, json_schema())


# reading


@st.composite
def nodes(draw: st.DrawFn) -> NodeSnapshot:
    """Any topology of up to five GPUs and three NICs, unknown values included."""
    n, k = draw(st.integers(0, 5)), draw(st.integers(0, 3))
    rates = st.none() | st.integers(0, 200 * 10**9)
    gpus = [
        build.gpu(
            at,
            uuid=draw(st.none() | st.text()),
            numa_node=draw(st.none() | st.integers(0, 40)),
            links=(replace(SWITCHED, bytes_per_second=draw(rates)),),
        )
        for at in range(n)
    ]
    nics = tuple(Nic(name=draw(st.text()), bus_id=f"0000:c{i}:00.0") for i in range(k))
    counts, levels = st.none() | st.integers(0, 70), st.none() | st.integers(0, 5)
    return node(
        gpus,
        nics,
        kind=draw(st.sampled_from(FabricKind)),
        nvlinks=tuple(tuple(draw(counts) for _ in range(n)) for _ in range(n)),
        pcie=tuple(tuple(draw(levels) for _ in range(n + k)) for _ in range(n + k)),
    )


@given(seen=nodes())
def test_what_is_written_is_read_back(seen: NodeSnapshot) -> None:
    text = encode(seen)
    found = decode(text)

    assert found is not None
    assert msgspec.json.encode(found).decode() == text
    assert found == topology_of(seen)
    assert generation(found) == found.gen
    for i, j in itertools.combinations(range(found.n), 2):
        level = seen.topology.pcie[i][j]
        assert found.links(i, j) == min(seen.topology.effective(i, j) or 0, 61)
        assert found.level(i, j) == (5 if level is None else level)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"gen": ...}, "`gen`"),
        ({"gen": "9F31C07AB2"}, r"\$\.gen"),
        (
            {"gen": "9f31c07ab2\n"},
            "`gen` has characters that are no plain text; delete it",
        ),
        ({"n": -1}, r"\$\.n"),
        ({"n": 2.5}, r"\$\.n"),
        ({"n": 10**4000}, r"\$\.n"),
        ({"fab": "torus"}, r"\$\.fab"),
        ({"lbw": []}, "`lbw` has 0 entries, not 1 or 3"),
        ({"lbw": [1, 2]}, "`lbw` has 2"),
        ({"lbw": [2**70]}, r"\$\.lbw"),
        ({"lbw": [-1]}, r"\$\.lbw"),
        ({"nv": "ii"}, "`nv` has 2 entries, not 3"),
        ({"nv": "ii-"}, r"\$\.nv"),
        ({"nv": "ii\n"}, "`nv` has characters that are no plain text"),
        ({"nv": "ii٣"}, r"\$\.nv"),
        ({"pc": "4444"}, "`pc` has 4 entries, not 3"),
        ({"pc": "446"}, r"\$\.pc"),
        ({"pc": "44\n"}, "`pc` has characters that are no plain text"),
        ({"numa": [0, 0]}, "`numa` has 2 entries, not 3"),
        ({"numa": [0, 0, -2]}, r"\$\.numa\[2\]|\$\.numa\[\.\.\.\]"),
        ({"numa": [0, 0, 2**70]}, r"\$\.numa"),
        ({"ids": ["a"]}, "`ids` has 1 entries, not 3"),
        ({"bus": []}, "`bus` has 0 entries, not 3"),
        ({"bus": None}, r"\$\.bus"),
        ({"nic": [["mlx5_0", "0000:18:00.0"]]}, r"\$\.nic"),
        ({"nic": [["mlx5_0", "0000:18:00.0", "12"]]}, r"`nic\[0\]\[2\]` has 2 entries, not 3"),
    ],
)
def test_a_damaged_annotation_is_refused_by_the_name_of_its_key(
    keys: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInput, match=named) as refused:
        decode(changed(encode(switched(3)), **keys))

    assert "gpuscape.io/topology" in str(refused.value)


def test_one_gpu_has_one_rate() -> None:
    with pytest.raises(BadInput, match="`lbw` has 0 entries, not 1;"):
        decode(changed(encode(switched(1)), lbw=[]))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_hand_edited_garbage_is_read_or_refused_and_never_crashes(keys: dict[str, Any]) -> None:
    text = changed(encode(switched(2, nics=1)), **keys)

    try:
        found = decode(text)
    except BadInput:
        return

    if found is not None:
        assert all(found.links(i, j) >= 0 for i in range(found.n) for j in range(found.n))
        assert len(generation(found)) == 10
