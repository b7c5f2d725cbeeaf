# SPDX-License-Identifier: Apache-2.0
"""Default configurations, against lists written by hand from mig-parted's default file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts
from mig.configs.default_configs import generated_configs, listed_configs
from mig.configs.known_mig_models import FAMILIES, known_family
from mig.configs.mig_configs import MigConfigs
from mig.gpu_layout import MIG_OFF, GpuLayout, layout_from_counts
from simulator.description.machine_catalog import load_models
from tests.mig.mig_gpus import A30, A100, A100_80, H100, OFF, ON, RTX_PRO, T4, mig_gpu

SEVENTHS = """\
5 10 20 40
10 20 40 80
12 24 47 94
12 24 48 96
18 35 71 141
18 36 72 144
23 45 90 180
23 47 93 186
34 67 135 269
35 70 139 278
"""
"""GB of the instances of one, two, four and eight units, for the models with seven slices."""
OTHERS = {
    "all-3g.95gb": {"3g.95gb": 2},
    "all-4g.95gb": {"4g.95gb": 1},
    "all-7g.189gb": {"7g.189gb": 1},
    "all-1g.6gb": {"1g.6gb": 4},
    "all-1g.6gb.me": {"1g.6gb+me": 1},
    "all-2g.12gb": {"2g.12gb": 2},
    "all-2g.12gb.me": {"2g.12gb+me": 1},
    "all-4g.24gb": {"4g.24gb": 1},
    "all-1g.24gb": {"1g.24gb": 4},
    "all-1g.24gb.me": {"1g.24gb+me": 1},
    "all-1g.24gb.gfx": {"1g.24gb+gfx": 4},
    "all-1g.24gb.me.all": {"1g.24gb+me.all": 1},
    "all-1g.24gb-me": {"1g.24gb-me": 4},
    "all-2g.48gb": {"2g.48gb": 2},
    "all-2g.48gb.gfx": {"2g.48gb+gfx": 2},
    "all-2g.48gb.me.all": {"2g.48gb+me.all": 1},
    "all-2g.48gb-me": {"2g.48gb-me": 2},
    "all-4g.96gb": {"4g.96gb": 1},
    "all-4g.96gb.gfx": {"4g.96gb+gfx": 1},
}
"""Without a filter; the graphics boards, A30 and the larger GB200."""
FILTERED = {
    "all-1g.10gb": {
        "20B0 20B1 20F1 20F6": {"1g.10gb": 4},
        "20B2 20B5 20F3 20F5 2330 2331 2322 2324": {"1g.10gb": 7},
    },
    "all-1g.35gb": {"2335 233B": {"1g.35gb": 4}, "31C2": {"1g.35gb": 7}},
    "all-balanced": {
        "20B0 20B1 20F1 20F6": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
        "20B2 20B5 20F3 20F5 2330 2331 2322 2324": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
        "20B7": {"1g.6gb": 2, "2g.12gb": 1},
        "20B6 2342 233D 2329": {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
        "2321 233A": {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
        "2335 233B": {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
        "2348": {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
        "2901": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
        "2941": {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
        "3182": {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
        "31C2": {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},
        "2BB5 2BB1 2BB4": {"1g.24gb": 2, "2g.48gb": 1},
    },
}

GB200_OF_189_GB = {"3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1}
"""Same id as the simulator's."""

Contents = dict[str, dict[frozenset[int], GpuLayout]]
"""Name to filters to layout; no filters for all models."""

EVERY = frozenset[int]()


def contents(configs: MigConfigs) -> Contents:
    found: Contents = {}
    for config in configs.configs:
        entries = {frozenset(one.device for one in s.filters): s.layout for s in config.specs}
        assert len(entries) == len(config.specs)
        assert all(spec.devices is None for spec in config.specs)
        found[config.name] = entries
    assert len(found) == len(configs.configs)
    return found


def expected() -> Contents:
    found: Contents = {
        "all-disabled": {EVERY: MIG_OFF},
        "all-enabled": {EVERY: GpuLayout(mig=True)},
    }
    plain = dict(OTHERS)
    for line in SEVENTHS.splitlines():
        one, two, four, eight = line.split()
        plain |= {
            f"all-1g.{one}gb": {f"1g.{one}gb": 7},
            f"all-1g.{one}gb.me": {f"1g.{one}gb+me": 1},
            f"all-1g.{two}gb": {f"1g.{two}gb": 4},
            f"all-2g.{two}gb": {f"2g.{two}gb": 3},
            f"all-3g.{four}gb": {f"3g.{four}gb": 2},
            f"all-4g.{four}gb": {f"4g.{four}gb": 1},
            f"all-7g.{eight}gb": {f"7g.{eight}gb": 1},
        }
    found |= {name: {EVERY: layout_from_counts(devices)} for name, devices in plain.items()}
    for name, groups in FILTERED.items():
        found[name] = {
            frozenset(int(f"{each}10DE", 16) for each in ids.split()): layout_from_counts(devices)
            for ids, devices in groups.items()
        }
    return found


def names(*gpus: MigGpu) -> set[str]:
    return {config.name for config in generated_configs(gpus).configs}


# the list


def test_the_list_has_the_81_configurations_of_upstream_and_closes_two_gaps() -> None:
    found = contents(listed_configs())

    assert found == expected()
    assert len(found) == 81


def test_no_id_stands_in_two_families() -> None:
    ids = Counter(device for family in FAMILIES for device in family.devices)

    assert set(ids.values()) == {1}


@pytest.mark.parametrize("model", [name for name, model in load_models().items() if model.mig])
def test_the_table_of_models_agrees_with_the_simulators(model: str) -> None:
    """Whose sources are other pages of the user guide."""
    gpu = mig_gpu(0, model)
    family = known_family(gpu.device_id)

    assert family is not None
    others = GB200_OF_189_GB if model == "gb200" else {}
    assert (
        dict(family.max_instances) == {one.name: one.max_instances for one in gpu.profiles} | others
    )


# generated


def test_the_generated_ones_are_those_of_the_list_for_the_model() -> None:
    """With MIG off on an older driver too, which reports no profiles then."""
    listed = listed_configs()
    for gpu in (mig_gpu(0, A100), mig_gpu(0, A100, silent=True)):
        generated = generated_configs([gpu])

        assert {one.name for one in generated.configs} == {
            "all-disabled", "all-enabled", "all-balanced", "all-1g.5gb", "all-1g.5gb.me",
            "all-1g.10gb", "all-2g.10gb", "all-3g.20gb", "all-4g.20gb", "all-7g.40gb",
        }  # fmt: skip
        assert {key for entries in contents(generated).values() for key in entries} == {EVERY}
        for config in generated.configs:
            theirs = config_layouts(listed.selected(config.name), [gpu])
            assert config_layouts(config, [gpu]) == theirs


def test_filters_stand_where_models_differ() -> None:
    gpus = (mig_gpu(0, A100), mig_gpu(1, A100_80), mig_gpu(2, H100), mig_gpu(3, T4))
    found = contents(generated_configs(gpus))

    assert found["all-1g.10gb"] == {
        frozenset({0x20B010DE}): layout_from_counts({"1g.10gb": 4}),
        frozenset({0x20B210DE, 0x233010DE}): layout_from_counts({"1g.10gb": 7}),
    }
    assert found["all-1g.5gb"] == {frozenset({0x20B010DE}): layout_from_counts({"1g.5gb": 7})}
    assert found["all-disabled"] == {EVERY: MIG_OFF}


def test_balanced_takes_the_smaller_profile_of_a_size_and_no_attributes() -> None:
    found = contents(generated_configs([mig_gpu(0, RTX_PRO)]))

    assert found["all-balanced"] == {EVERY: layout_from_counts({"1g.24gb": 2, "2g.48gb": 1})}
    assert found["all-1g.24gb-me"] == {EVERY: layout_from_counts({"1g.24gb-me": 4})}


def test_balanced_never_has_a_profile_with_attributes_even_where_more_of_it_fit() -> None:
    """Of the RTX PRO's -me and +gfx as many fit as of the plain ones; here more."""
    gpu = mig_gpu(0, RTX_PRO)
    more = replace(
        gpu,
        profiles=tuple(
            one
            if one.name in ("1g.24gb", "2g.48gb")
            else replace(one, max_instances=one.max_instances + 9)
            for one in gpu.profiles
        ),
    )

    found = contents(generated_configs([more]))

    assert found["all-balanced"] == {EVERY: layout_from_counts({"1g.24gb": 2, "2g.48gb": 1})}


def test_the_drivers_counts_of_an_a30_are_corrected() -> None:
    """It reports more than fit."""
    right = mig_gpu(0, A30)
    wrong = MigGpu(
        **{name: getattr(right, name) for name in right.__slots__}
        | {
            "profiles": tuple(
                type(one)(
                    **{name: getattr(one, name) for name in one.__slots__}
                    | {"max_instances": one.max_instances + 3}
                )
                for one in right.profiles
            )
        }
    )

    assert contents(generated_configs([wrong])) == contents(generated_configs([right]))
    assert contents(generated_configs([right]))["all-1g.6gb"] == {
        EVERY: layout_from_counts({"1g.6gb": 4})
    }


def test_a_gpu_without_mig_gives_an_entry_no_filter() -> None:
    """It is a model more on the node, but not one that an entry could be for."""
    alone = contents(generated_configs([mig_gpu(0, A100)]))

    assert contents(generated_configs([mig_gpu(0, A100), mig_gpu(1, T4)])) == alone
    assert set(alone["all-1g.5gb"]) == {EVERY}


def test_a_node_without_mig_can_be_told_to_have_none() -> None:
    assert names() == names(mig_gpu(0, T4)) == {"all-disabled", "all-enabled"}


def test_a_model_that_nobody_knows_takes_part_in_the_modes_only() -> None:
    known = mig_gpu(0, A100)
    unknown = MigGpu(
        **{name: getattr(known, name) for name in known.__slots__}
        | {"device_id": 0x111110DE, "profiles": ()}
    )

    assert names(unknown) == {"all-disabled", "all-enabled"}


@pytest.mark.parametrize("mode", [ON, OFF])
@pytest.mark.parametrize("model", [A100, A30, H100, RTX_PRO])
def test_every_generated_configuration_means_something_on_its_gpus(
    model: str, mode: object
) -> None:
    gpus = [mig_gpu(0, model, mode=mode), mig_gpu(1, T4)]  # type: ignore[arg-type]

    for config in generated_configs(gpus).configs:
        assert config_layouts(config, gpus).keys() == {gpus[0].uuid}
