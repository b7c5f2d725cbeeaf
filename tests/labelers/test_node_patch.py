# SPDX-License-Identifier: Apache-2.0
"""What is written on a Node, and what is left to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import keys, limits
from api.key_kinds import KeyLocation, Writer
from api.names import FEATURE_LABELS
from labelers.decision import Absent, Decision, Decisions, Keep, Value
from labelers.node_patch import NodePatch, last_writer, plan_node_patch, writers

MODE, COUNT = "nvidia.com/gpu.mode", "nvidia.com/gpu.count"
SLICES, SLICES_FAMILY = "nvidia.com/mig-1g.5gb.count", "nvidia.com/mig-<profile>.count"
FOREIGN = ("zone", "nvidia.com/gpu.present", "nvidia.com/gpu.deploy.driver", keys.MIG_CONFIG)
ADMINS = (keys.MIG_LAYOUT, keys.RELEASE, keys.CLEAR_XIDS, keys.DRAIN)
ABSENT, KEEP = Absent(reason="known to be gone"), Keep(reason="not known now")


def node(
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    *entries: Mapping[str, Any],
) -> dict[str, Any]:
    """A Node with these, and these entries in managedFields."""
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": {**metadata, "managedFields": list(entries)}}


def entry(
    manager: str, *owned: str, operation: str = "Apply", part: str = "labels"
) -> dict[str, Any]:
    """One entry of managedFields."""
    fields: dict[str, Any] = {
        "f:metadata": {f"f:{part}": {".": {}, **{f"f:{key}": {} for key in owned}}}
    }
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def patched(
    labels: Decisions, of: Mapping[str, Any], annotations: Decisions | None = None
) -> NodePatch:
    """The plan for ``of``."""
    return plan_node_patch(of, labels, annotations or {})


@pytest.mark.parametrize(
    ("shown", "labels", "annotations", "patch"),
    [
        (node(), {MODE: Value(text="compute")}, {}, {"labels": {MODE: "compute"}}),
        (
            node({MODE: "graphics", COUNT: "8"}),
            {MODE: Value(text="compute"), COUNT: ABSENT},
            {},
            {"labels": {MODE: "compute", COUNT: None}},
        ),
        (
            node({SLICES: "7"}, {keys.TOPOLOGY: "edited by hand"}),
            {SLICES_FAMILY: ABSENT},
            {keys.TOPOLOGY: Value(text="{}")},
            {"labels": {SLICES: None}, "annotations": {keys.TOPOLOGY: "{}"}},
        ),
        (node({MODE: "compute"}), {MODE: KEEP, COUNT: KEEP}, {keys.TOPOLOGY: KEEP}, None),
        (node({MODE: "compute"}), {MODE: Value(text="compute"), COUNT: ABSENT}, {}, None),
        (node({MODE: "compute", "zone": "a"}), {}, {}, None),
        ({"metadata": {"name": "bare"}}, {COUNT: ABSENT}, {keys.TOPOLOGY: ABSENT}, None),
        (
            node({"zone": "a", keys.MIG_CONFIG: "x"}, {keys.RELEASE: "yes"}),
            {"zone": Value(text="b"), keys.MIG_CONFIG: ABSENT, SLICES_FAMILY: Value(text="1")},
            {keys.RELEASE: ABSENT, keys.MIG_PERMIT: Value(text="proceed"), MODE: Value(text="x")},
            None,
        ),
        (node(), {keys.MIG_CONFIG_STATE: Value(text="pending")}, {},
         {"labels": {keys.MIG_CONFIG_STATE: "pending"}}),
        (node(), {}, {keys.STATE: Value(text="of the Lease")}, None),
    ],
)  # fmt: skip
def test_the_patch_has_our_changed_keys_and_no_others(
    shown: dict[str, Any],
    labels: Decisions,
    annotations: Decisions,
    patch: dict[str, Any] | None,
) -> None:
    planned = plan_node_patch(shown, labels, annotations)

    assert planned.patch == ({} if patch is None else {"metadata": patch})
    assert planned.left_alone == {}
    assert bool(planned.changed) == bool(planned.patch)


WANTED: Decisions = {MODE: Value(text="compute"), COUNT: Value(text="8")}


@pytest.mark.parametrize(
    ("shown", "labels", "left"),
    [
        (node({MODE: "graphics"}, {}, entry("argocd", MODE)), {COUNT: "8"}, {MODE: "argocd"}),
        # by another way to the same owner; who alone applies; equal values are no dispute
        (
            node({MODE: "graphics"}, {}, entry("argocd", MODE) | {"subresource": "status"}),
            {COUNT: "8"},
            {MODE: "argocd"},
        ),
        (node({MODE: "graphics"}, {}, entry("gpuscape-agent", MODE)), {COUNT: "8"},
         {MODE: "gpuscape-agent"}),
        (node({MODE: "compute"}, {}, entry("argocd", MODE)), {COUNT: "8"}, {}),
        # plain updaters are taken over from; an annotation of that name is another thing
        (
            node({MODE: "graphics"}, {}, entry("kubectl-label", MODE, operation="Update")),
            {MODE: "compute", COUNT: "8"},
            {},
        ),
        (
            node({MODE: "graphics"}, {}, entry("argocd", MODE, part="annotations")),
            {MODE: "compute", COUNT: "8"},
            {},
        ),
        (
            node({MODE: "graphics"}, {FEATURE_LABELS: f"cpu.x,{MODE},{COUNT}"}),
            {},
            {MODE: "nfd-master", COUNT: "nfd-master"},
        ),
        (
            node({MODE: "compute"}, {f"second.{FEATURE_LABELS}": MODE}),
            {COUNT: "8"},
            {MODE: "nfd-master"},
        ),
        (
            node({MODE: "graphics"}, {f"not-{FEATURE_LABELS}": MODE, "x": COUNT}),
            {MODE: "compute", COUNT: "8"},
            {},
        ),
        (node({}, {}, {"manager": "odd", "operation": "Apply"}), {MODE: "compute", COUNT: "8"}, {}),
        (
            node({MODE: "graphics"}, {}, entry("odd", MODE, operation="")),
            {MODE: "compute", COUNT: "8"},
            {},
        ),
    ],
)  # fmt: skip
def test_a_key_of_another_owner_is_left_out_and_its_owner_named(
    shown: dict[str, Any], labels: dict[str, str], left: dict[str, str]
) -> None:
    planned = patched(WANTED, shown)

    assert planned.labels == labels
    assert planned.left_alone.keys() == left.keys()
    for key, owner in left.items():
        assert owner in planned.left_alone[key]


def test_gpu_feature_discovery_is_named_as_the_usual_source_of_labels_of_nfd_master() -> None:
    planned = patched(WANTED, node({}, {FEATURE_LABELS: MODE}))

    assert "gpu-feature-discovery" in planned.left_alone[MODE]


def test_what_nfd_master_owns_is_not_even_removed_and_told_only_where_we_have_a_say() -> None:
    shown = node({MODE: "x", COUNT: "8", SLICES: "7"}, {FEATURE_LABELS: f"{MODE},{COUNT},{SLICES}"})

    planned = patched({MODE: ABSENT, COUNT: KEEP}, shown)

    assert planned.patch == {}
    assert planned.left_alone.keys() == {MODE}


def test_keys_to_leave_for_now_are_reported_only_while_they_differ() -> None:
    leave = {MODE: "contested", keys.TOPOLOGY: "contested"}

    planned = plan_node_patch(
        node({MODE: "compute"}), WANTED, {keys.TOPOLOGY: Value(text="{}")}, leave=leave
    )

    assert planned.changed == {COUNT: "8"}
    assert planned.left_alone == {keys.TOPOLOGY: "contested"}


def test_an_annotation_that_an_applier_owns_is_left_alone() -> None:
    shown = node({}, {keys.TOPOLOGY: "his"}, entry("argocd", keys.TOPOLOGY, part="annotations"))

    planned = plan_node_patch(shown, WANTED, {keys.TOPOLOGY: Value(text="{}")})

    assert planned.annotations == {}
    assert planned.left_alone.keys() == {keys.TOPOLOGY}


def many(count: int) -> dict[str, str]:
    """Labels of ours, of one family."""
    return {f"gpuscape.io/count.model-{at:03d}": "1" for at in range(count)}


@pytest.mark.parametrize("foreign", [0, 6, 300])
def test_labels_beyond_the_limit_are_dropped_and_the_rest_is_written(foreign: int) -> None:
    others = {f"nvidia.com/other-{at}": "" for at in range(foreign)}
    gone = "gpuscape.io/memory.gone"
    wanted: Decisions = {key: Value(text="1") for key in many(300)}

    planned = patched({**wanted, gone: ABSENT}, node({**others, "zone": "a", gone: "7"}))

    room = max(0, limits.MOST_LABELS - foreign)
    written = {key: text for key, text in planned.labels.items() if text is not None}
    assert list(written) == list(many(300))[:room]
    assert planned.labels[gone] is None
    assert list(planned.dropped) == list(many(300))[room:]


def test_a_changed_label_takes_no_room() -> None:
    there = many(limits.MOST_LABELS)
    first = next(iter(there))

    planned = patched({first: Value(text="2"), MODE: Value(text="compute")}, node(there))

    assert planned.labels == {first: "2"}
    assert planned.dropped.keys() == {MODE}


@pytest.mark.parametrize(
    ("there", "wanted", "changed", "dropped"),
    [
        ({}, {keys.TOPOLOGY: "x" * 4096}, {keys.TOPOLOGY: "x" * 4096}, ()),
        ({}, {keys.TOPOLOGY: "x" * 4097}, {}, (keys.TOPOLOGY,)),
        ({keys.TOPOLOGY: "old"}, {keys.TOPOLOGY: "é" * 2049}, {keys.TOPOLOGY: None},
         (keys.TOPOLOGY,)),
        ({"a": "x" * 9000, keys.MIG_LAYOUT: "x" * 9000}, {keys.TOPOLOGY: "y"},
         {keys.TOPOLOGY: "y"}, ()),
        (
            {keys.MIG_STATUS: "x" * 4096},
            {keys.TOPOLOGY: "y" * 4096},
            {keys.TOPOLOGY: "y" * 4096},
            (),
        ),
        ({keys.MIG_STATUS: "x" * 4096}, {keys.TOPOLOGY: "y" * 4097}, {}, (keys.TOPOLOGY,)),
        ({keys.MIG_STATUS: "x" * 9000}, {}, {}, ()),
        (
            {keys.TOPOLOGY: "old"},
            {keys.MIG_REQUEST: "x" * 8000, keys.TOPOLOGY: "y" * 1000},
            {keys.MIG_REQUEST: "x" * 8000, keys.TOPOLOGY: None},
            (keys.TOPOLOGY,),
        ),
    ],
)  # fmt: skip
def test_an_annotation_without_room_is_dropped_and_its_wrong_old_text_removed(
    there: dict[str, str],
    wanted: dict[str, str],
    changed: dict[str, str | None],
    dropped: tuple[str, ...],
) -> None:
    decisions = {key: Value(text=text) for key, text in wanted.items()}

    planned = plan_node_patch(node({}, there), {}, decisions)

    assert planned.annotations == changed
    assert tuple(planned.dropped) == dropped


def test_whoever_wrote_a_value_can_be_named() -> None:
    meta = node(
        {MODE: "x"}, {}, entry("nobody", COUNT), entry("kubectl-edit", MODE, operation="Update")
    )["metadata"]

    assert writers(meta, KeyLocation.NODE_LABEL, MODE) == ("kubectl-edit",)
    assert writers(meta, KeyLocation.NODE_ANNOTATION, MODE) == ()


def test_of_several_writers_the_one_that_wrote_last_is_named_with_its_time() -> None:
    earlier, later = "2026-11-20T08:00:00Z", "2026-11-20T09:00:00Z"
    meta = node(
        {MODE: "x"},
        {},
        entry("second", MODE, operation="Update") | {"time": later},
        entry("first", MODE, operation="Update") | {"time": earlier},
        entry("nobody", COUNT) | {"time": "2027-01-01T00:00:00Z"},
    )["metadata"]

    assert last_writer(meta, KeyLocation.NODE_LABEL, MODE) == ("second", later)
    assert last_writer(meta, KeyLocation.NODE_ANNOTATION, MODE) is None


def test_an_owner_without_a_name_is_shown_as_one() -> None:
    """managedFields need not name the manager."""
    nameless = {key: of for key, of in entry("any", MODE).items() if key != "manager"}
    shown = node({MODE: "graphics"}, {}, nameless)

    assert writers(shown["metadata"], KeyLocation.NODE_LABEL, MODE) == ("?",)
    assert patched(WANTED, shown).left_alone == {MODE: "? owns it by server-side apply"}


def test_why_a_key_was_left_out_names_owner_limit_and_size() -> None:
    shown = node(many(limits.MOST_LABELS), {}, entry("argocd", MODE))

    planned = plan_node_patch(shown, WANTED, {keys.TOPOLOGY: Value(text="x" * 4097)})
    of_nfd = patched(WANTED, node({}, {FEATURE_LABELS: MODE})).left_alone

    assert planned.left_alone == {MODE: "argocd owns it by server-side apply"}
    assert planned.dropped == {
        COUNT: "the Node would have more than 256 labels under nvidia.com/ and gpuscape.io/",
        keys.TOPOLOGY: "4097 bytes: all our annotations may have 4096 together",
    }
    assert of_nfd == {
        MODE: "nfd-master owns it (annotation nfd.node.kubernetes.io/feature-labels) and has it"
        " from a NodeFeature or feature file, such as gpu-feature-discovery's"
    }


def test_without_some_keys_a_patch_changes_the_others_and_keeps_what_is_known() -> None:
    planned = NodePatch(
        labels={MODE: "compute", COUNT: None},
        annotations={keys.TOPOLOGY: "{}", keys.MIG_STATUS: "x"},
        left_alone={SLICES: "contested"},
        dropped={"a": "no room"},
    )

    left = planned.without([COUNT, keys.TOPOLOGY])

    assert left.changed == {MODE: "compute", keys.MIG_STATUS: "x"}
    assert (left.labels, left.annotations) == ({MODE: "compute"}, {keys.MIG_STATUS: "x"})
    assert (left.left_alone, left.dropped) == (planned.left_alone, planned.dropped)


# Any Node, any decisions.

OURS = (MODE, COUNT, SLICES, "gpuscape.io/gpu.health", keys.MIG_CONFIG_STATE)
OWN_ANNOTATIONS = (keys.TOPOLOGY, keys.MIG_STATUS)
TEXTS = st.sampled_from(["a", "b"]) | st.just("x" * 3000)
MANAGERS = st.sampled_from(["argocd", "kubectl", "gpuscape-agent"])


def decisions(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Decision]]:
    return st.dictionaries(
        st.sampled_from(names), st.builds(Value, text=TEXTS) | st.just(ABSENT) | st.just(KEEP)
    )


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """A Node with labels and annotations of many owners."""
    labels = draw(st.dictionaries(st.sampled_from((*OURS, *FOREIGN)), TEXTS))
    annotations = draw(st.dictionaries(st.sampled_from((*OWN_ANNOTATIONS, *ADMINS)), TEXTS))
    if draw(st.booleans()):
        annotations[FEATURE_LABELS] = ",".join(
            draw(st.sets(st.sampled_from(sorted(labels or "x"))))
        )
    entries = [
        entry(
            draw(MANAGERS),
            *draw(st.sets(st.sampled_from(sorted(there)))),
            operation=draw(st.sampled_from(["Apply", "Update"])),
            part=part,
        )
        for part, there in (("labels", labels), ("annotations", annotations))
        if there
    ]
    return node(labels, annotations, *entries)


def after(of: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The Node after the merge patch."""
    meta = dict(of["metadata"])
    for part, changed in patch.get("metadata", {}).items():
        texts = {**meta[part], **changed}
        meta[part] = {key: text for key, text in texts.items() if text is not None}
    return {"metadata": meta}


EVERY_LABEL, EVERY_ANNOTATION = (*OURS, *FOREIGN, SLICES_FAMILY), (*OWN_ANNOTATIONS, *ADMINS)


@given(nodes(), decisions(EVERY_LABEL), decisions(EVERY_ANNOTATION))
def test_a_patch_never_names_a_key_that_is_not_ours(
    shown: dict[str, Any], labels: Decisions, annotations: Decisions
) -> None:
    planned = plan_node_patch(shown, labels, annotations)

    assert planned.labels.keys() <= set(OURS)
    assert planned.annotations.keys() <= set(OWN_ANNOTATIONS)


@given(nodes(), decisions(EVERY_LABEL), decisions(EVERY_ANNOTATION))
def test_after_the_patch_there_is_nothing_left_to_do(
    shown: dict[str, Any], labels: Decisions, annotations: Decisions
) -> None:
    planned = plan_node_patch(shown, labels, annotations)

    again = plan_node_patch(after(shown, planned.patch), labels, annotations)

    assert again.patch == {}


@given(nodes(), decisions(EVERY_LABEL), decisions(EVERY_ANNOTATION))
def test_values_that_others_apply_or_nfd_master_owns_never_change(
    shown: dict[str, Any], labels: Decisions, annotations: Decisions
) -> None:
    meta = shown["metadata"]
    theirs = {
        (part, key.removeprefix("f:"))
        for of in meta["managedFields"]
        if of["operation"] == "Apply"
        for part in ("labels", "annotations")
        for key in of["fieldsV1"]["f:metadata"].get(f"f:{part}", {})
    }
    listed = meta["annotations"].get(FEATURE_LABELS, "").split(",")
    theirs |= {("labels", key) for key in listed}

    then = after(shown, plan_node_patch(shown, labels, annotations).patch)["metadata"]

    for part, key in theirs:
        assert then[part].get(key) == meta[part].get(key)


def test_every_key_of_the_agent_on_a_node_can_be_written_and_no_other() -> None:
    """The registry alone decides, so that policies and sinks cannot differ."""
    exact = [key for key in keys.KEYS if key.pattern is None]
    wanted: Decisions = {key.name: Value(text="1") for key in exact}

    planned = plan_node_patch(node(), wanted, wanted)

    agents = [key for key in exact if key.writer is Writer.AGENT]
    assert planned.labels.keys() == {k.name for k in agents if k.where is KeyLocation.NODE_LABEL}
    assert planned.annotations.keys() == {
        k.name for k in agents if k.where is KeyLocation.NODE_ANNOTATION
    }
