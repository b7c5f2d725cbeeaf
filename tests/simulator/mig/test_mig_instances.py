# SPDX-License-Identifier: Apache-2.0
"""What fits on a GPU, against all layouts by brute force, and what must be true in between."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pynvml as nv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.description.machine_catalog import load_models
from simulator.description.machine_schema import Model
from simulator.state import mig_geometry, mig_instance_changes
from simulator.state.machine_state import GpuInstance, SimulatedGpuState
from tests.simulator.mig import layouts
from tests.simulator.mig.layouts import FOUR, SEVEN, TWELVE, Family

MODELS: Final = load_models()
FAMILIES: Final = {
    "a30": FOUR,
    "a100-sxm4-40gb": SEVEN,
    "a100-sxm4-80gb": SEVEN,
    "h100-sxm5-80gb": SEVEN,
    "h200-sxm-141gb": SEVEN,
    "b200-sxm-180gb": SEVEN,
    "rtx-pro-6000": TWELVE,
}
ALL_LAYOUTS: Final = {key: tuple(layouts.layouts(family)) for key, family in FAMILIES.items()}
EMPTY: Final = SimulatedGpuState(mig=True, mig_pending=True)
BASE: Final = ("1g", "2g", "3g", "4g", "7g")


def code_of(call: Any) -> int:
    try:
        call()
    except Nvml as refused:
        return refused.code
    return 0


def made(model: Model, gpu: SimulatedGpuState, name: str, start: int | None) -> SimulatedGpuState:
    """The GPU with one instance more, by profile name and start."""
    profile = next(one for one in model.mig if one.name == name)
    place = None if start is None else (start, profile.size)
    return mig_instance_changes.with_gpu_instance(model, gpu, profile.id, place)[0]


def tried_out(
    model: Model, gpu: SimulatedGpuState, name: str, start: int | None
) -> SimulatedGpuState | None:
    """The GPU with one instance more; None where it has no room."""
    try:
        return made(model, gpu, name, start)
    except Nvml as refused:
        if refused.code != nv.NVML_ERROR_INSUFFICIENT_RESOURCES:
            raise
        return None


def short_name(model: Model, name: str) -> str:
    """``1g+me`` for ``1g.5gb+me``; the second 1g of a model is the one of double memory."""
    slices, _, rest = name.partition(".")
    suffix = next((s for s in ("+me.all", "+me", "-me", "+gfx") if rest.endswith(s)), "")
    enum = next(one.enum for one in model.mig if one.name == name)
    return "1g double" if enum == nv.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2 else slices + suffix


# against brute force


@pytest.mark.parametrize(
    ("family", "names", "feasible", "maximal"),
    [
        (SEVEN, BASE, 37, 12),
        (SEVEN, (*BASE, "1g double"), 77, 28),
        (SEVEN, (), 127, 44),
        (FOUR, ("1g", "2g", "4g"), 9, 4),
        (FOUR, (), 19, 8),
        (TWELVE, (), 114, 64),
    ],
)
def test_the_brute_force_has_the_known_numbers_of_layouts(
    family: Family, names: tuple[str, ...], feasible: int, maximal: int
) -> None:
    """What the tests below compare with; the numbers were counted by another program before."""
    sets = layouts.multisets(family, names)

    assert (len(sets), len(layouts.maximal(sets))) == (feasible, maximal)


@pytest.mark.parametrize("key", FAMILIES)
def test_the_layouts_that_can_be_made_are_those_that_there_are(key: str) -> None:
    """From each layout every instance at every place is tried; none is missing, none too many."""
    model = MODELS[key]
    there: dict[frozenset[tuple[str, int]], SimulatedGpuState] = {}
    open_ends = [EMPTY]
    while open_ends:
        gpu = open_ends.pop()
        layout = frozenset((short_name(model, one.profile), one.start) for one in gpu.instances)
        if layout in there:
            continue
        there[layout] = gpu
        tried = [(profile.name, start) for profile in model.mig for start in profile.starts]
        open_ends += [grown for one in tried if (grown := tried_out(model, gpu, *one)) is not None]

    assert set(there) == {frozenset(one) for one in ALL_LAYOUTS[key]}


@pytest.mark.parametrize("key", FAMILIES)
def test_capacity_is_how_many_more_can_be_made(key: str) -> None:
    """On each of some layouts, what is promised can be made one after the other."""
    model = MODELS[key]
    names = {short_name(model, profile.name): profile.name for profile in model.mig}
    for layout in ALL_LAYOUTS[key][:1600:8]:
        gpu = EMPTY
        for name, start in layout:
            gpu = made(model, gpu, names[name], start)
        for profile in model.mig:
            promised = mig_geometry.gpu_instances_left(model, gpu.instances, profile)
            filled, count = gpu, 0
            while (more := tried_out(model, filled, profile.name, None)) is not None:
                filled, count = more, count + 1
            assert count == promised


# where the driver puts them


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (("1g", "2g", "4g"), [(6, 13), (4, 5), (0, 1)]),
        (("1g", "1g", "2g"), [(6, 13), (4, 11), (0, 3)]),
        (("3g", "1g", "2g", "1g"), [(4, 2), (0, 7), (2, 4), (1, 8)]),
        (("2g", "1g", "1g", "1g", "1g", "1g"), [(4, 5), (6, 13), (0, 7), (1, 8), (2, 9), (3, 10)]),
        (("1g",) * 7, [(6, 13), (4, 11), (5, 12), (0, 7), (1, 8), (2, 9), (3, 10)]),
    ],
)
def test_the_driver_puts_them_where_the_user_guide_shows_them(
    wanted: tuple[str, ...], places: list[tuple[int, int]]
) -> None:
    """Start and id of each, on a GPU of seven slices. Source: MIG user guide, examples."""
    model, gpu = MODELS["a100-sxm4-40gb"], EMPTY
    names = {short_name(model, profile.name): profile.name for profile in model.mig}

    for name in wanted:
        gpu = made(model, gpu, names[name], None)

    assert [(one.start, one.id) for one in gpu.instances] == places


def test_an_order_that_the_user_guide_shows_to_fail_fails() -> None:
    """1g, 1g, 2g, 3g: the small ones spread over both halves, though all would fit."""
    model, gpu = MODELS["a100-sxm4-40gb"], EMPTY
    for name in ("1g.5gb", "1g.5gb", "2g.10gb"):
        gpu = made(model, gpu, name, None)

    code = code_of(lambda: made(model, gpu, "3g.20gb", None))

    assert code == nv.NVML_ERROR_INSUFFICIENT_RESOURCES


# whatever is called


REFUSALS: Final = (
    nv.NVML_ERROR_INSUFFICIENT_RESOURCES,
    nv.NVML_ERROR_IN_USE,
    nv.NVML_ERROR_NOT_SUPPORTED,
)
Step = tuple[str, int, int]
"""What to do, and two numbers that choose what with."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "place", "destroy", "cut", "uncut")),
        st.integers(0, 63),
        st.integers(0, 63),
    ),
    max_size=40,
)


def after(model: Model, gpu: SimulatedGpuState, step: Step) -> SimulatedGpuState:
    """What a step makes of a GPU; the same where it is refused."""
    what, one, other = step
    instances = gpu.instances
    profile = model.mig[one % len(model.mig)]
    try:
        if what == "create":
            return mig_instance_changes.with_gpu_instance(model, gpu, profile.id, None)[0]
        if what == "place":
            start = profile.starts[other % len(profile.starts)]
            place = (start, profile.size)
            return mig_instance_changes.with_gpu_instance(model, gpu, profile.id, place)[0]
        if not instances:
            return gpu
        instance = instances[one % len(instances)]
        if what == "destroy":
            return mig_instance_changes.without_gpu_instance(gpu, instance, ())
        if what == "cut":
            return mig_instance_changes.with_compute_instance(
                model, gpu, instance, other % 9, None
            )[0]
        if not instance.compute:
            return gpu
        compute = instance.compute[other % len(instance.compute)]
        return mig_instance_changes.without_compute_instance(gpu, instance, compute, ())
    except Nvml as refused:
        if refused.code not in REFUSALS:
            raise
        return gpu


def units(model: Model, instance: GpuInstance) -> range:
    size = mig_geometry.profile_of(model, instance).size
    return range(instance.start, instance.start + size)


@given(key=st.sampled_from(sorted(FAMILIES)), steps=STEPS)
def test_nothing_overlaps_and_nothing_is_promised_twice(key: str, steps: list[Step]) -> None:
    """Memory units, compute slices, memory, multiprocessors and engines; ids by place; births."""
    model, gpu = MODELS[key], EMPTY
    births = set[int]()
    for step in steps:
        before, gpu = gpu, after(model, gpu, step)
        profiles = [mig_geometry.profile_of(model, one) for one in gpu.instances]

        taken = [unit for one in gpu.instances for unit in units(model, one)]
        assert len(taken) == len(set(taken))
        assert max(taken, default=0) < mig_geometry.memory_unit_count(model)
        assert sum(one.memory_mib for one in profiles) <= (model.memory_mib or 0)
        most = max(one.multiprocessors for one in model.mig)
        assert sum(one.multiprocessors for one in profiles) <= most
        assert all(left >= 0 for left in mig_geometry.engines_left(model, gpu.instances).values())
        counts = Counter(one.name for one in profiles)
        assert all(counts[one.name] <= one.max for one in model.mig)

        assert len({one.id for one in gpu.instances}) == len(gpu.instances)
        for instance, profile in zip(gpu.instances, profiles, strict=True):
            assert instance.id == mig_geometry.instance_id(model, profile, instance.start)
            cells = [
                n for one in instance.compute for n in range(one.start, one.start + one.slices)
            ]
            assert len(cells) == len(set(cells))
            assert max(cells, default=0) < profile.slices
            assert len({one.id for one in instance.compute}) == len(instance.compute)
        new = {b for g in gpu.instances for b in (g.birth, *(c.birth for c in g.compute))} - {
            b for g in before.instances for b in (g.birth, *(c.birth for c in g.compute))
        }
        assert new.isdisjoint(births)
        births |= new


@given(data=st.data(), key=st.sampled_from(sorted(FAMILIES)))
def test_named_places_give_the_same_layout_in_any_order(data: st.DataObject, key: str) -> None:
    """With the same ids, so that MIG devices have the same UUIDs; and so does taking them away."""
    model = MODELS[key]
    names = {short_name(model, profile.name): profile.name for profile in model.mig}
    layout = data.draw(st.sampled_from(ALL_LAYOUTS[key]))
    orders = [data.draw(st.permutations(layout)) for _ in range(2)]

    ends = []
    for order in orders:
        gpu = EMPTY
        for name, start in order:
            gpu = made(model, gpu, names[name], start)
        ends.append({(one.id, one.profile, one.start) for one in gpu.instances})
        for one in gpu.instances:
            gpu = mig_instance_changes.without_gpu_instance(gpu, one, ())
        assert gpu.instances == ()

    assert ends[0] == ends[1]


@given(key=st.sampled_from(sorted(FAMILIES)), steps=STEPS, last=STEPS)
def test_what_is_kept_keeps_its_place_and_its_identity(
    key: str, steps: list[Step], last: list[Step]
) -> None:
    """Calls on one instance leave the others as they were."""
    model, gpu = MODELS[key], EMPTY
    for step in steps:
        gpu = after(model, gpu, step)
    for step in last:
        before, gpu = gpu, after(model, gpu, step)
        changed = set(before.instances) ^ set(gpu.instances)
        assert len({(one.id, one.birth) for one in changed}) <= 1
