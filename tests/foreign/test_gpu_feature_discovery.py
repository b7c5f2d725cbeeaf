# SPDX-License-Identifier: Apache-2.0
"""gpu-feature-discovery itself labels every machine as we do, but for what is listed here."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from api.mig_resources import MigStrategy
from simulator.description.machine_schema import GpuInstanceProfile, MigInstanceSpec
from simulator.simulation import Simulation
from tests.catalog import WITH_DRIVER, by_kind
from tests.foreign.foreign_programs import foreign
from tests.foreign.gpu_feature_discovery import Labels, feature_discovery, our_labels
from tests.foreign.parted_node import MODELS, WITHOUT_MACHINE, with_one

pytestmark = pytest.mark.cluster

RANDOM = "mixed"
"""It has several models, of which upstream names any one, another one in each run."""

EXCEPTIONS = {"wsl2": frozenset({"nvidia.com/vgpu.present"})}
"""Machine to the keys that differ: without /sys/bus/pci upstream's search for vGPUs fails."""

NAMED_MODEL = frozenset(
    {
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.memory",
        "nvidia.com/gpu.family",
        "nvidia.com/gpu.compute.major",
        "nvidia.com/gpu.compute.minor",
    }
)
"""The keys that then differ; docs/labels.md has the reasons for this and the other exception."""
RUNS = 60
"""Upstream names each of three models in about every third run."""


@pytest.mark.parametrize("strategy", list(MigStrategy))
@pytest.mark.parametrize("name", by_kind(name for name in WITH_DRIVER if name != RANDOM))
def test_labels_are_equal(name: str, strategy: MigStrategy, programs: Path) -> None:
    """Key for key and value for value; an exception that does not occur is none."""
    with foreign(name) as there:
        theirs = feature_discovery(there, programs, strategy)
        ours = our_labels(there, strategy)

    excepted = EXCEPTIONS.get(name, frozenset())
    assert differing(theirs, ours) == excepted
    assert excepted.isdisjoint(theirs)


@pytest.mark.parametrize("strategy", list(MigStrategy))
@pytest.mark.parametrize("model", WITHOUT_MACHINE)
def test_labels_of_a_model_that_no_machine_has_are_equal(
    model: str, strategy: MigStrategy, programs: Path, tmp_path: Path
) -> None:
    """A GPU for each profile, cut into as many instances as fit, and one whole GPU in front."""
    machine = with_one(model)
    layouts = [(), *(_filled(profile) for profile in MODELS[model].mig)]
    gpus = tuple(
        replace(
            machine.gpus[0],
            bus_id=f"0000:{0xA0 + at:02x}:00.0",
            path=(),
            numa_id=None,
            mig=bool(layout) or strategy is MigStrategy.SINGLE,
            instances=layout,
        )
        for at, layout in enumerate(layouts[1:2] * 2 if strategy is MigStrategy.SINGLE else layouts)
    )
    whole = replace(machine, gpus=gpus, nics=(), functions=())
    with foreign(Simulation.create(whole, tmp_path)) as there:
        theirs = feature_discovery(there, programs, strategy)
        ours = our_labels(there, strategy)

    assert theirs == ours
    assert any(".count" in key and "mig-" in key for key in ours) == (strategy == MigStrategy.MIXED)


def _filled(profile: GpuInstanceProfile) -> tuple[MigInstanceSpec, ...]:
    starts = [start for start in profile.starts if (start - profile.starts[0]) % profile.size == 0]
    return tuple(
        MigInstanceSpec(profile=profile.name, start=start, id=number)
        for number, start in enumerate(starts[: profile.max], 1)
    )


@pytest.mark.parametrize("strategy", list(MigStrategy))
def test_labels_of_several_models_are_sometimes_equal(
    strategy: MigStrategy, programs: Path
) -> None:
    """Ours are those that upstream writes when it happens to name the most frequent model."""
    with foreign(RANDOM) as there:
        ours = our_labels(there, strategy)
        runs = (differing(feature_discovery(there, programs, strategy), ours) for _ in range(RUNS))
        seen = set[bool]()
        for differ in runs:
            assert differ <= NAMED_MODEL
            seen.add(bool(differ))
            if len(seen) == 2:
                return
    raise AssertionError(f"upstream's labels are {'never' if True in seen else 'always'} ours")


def differing(theirs: Labels, ours: Labels) -> frozenset[str]:
    """Keys that are on one side only, or have another value there."""
    return frozenset(key for key in theirs | ours if theirs.get(key) != ours.get(key))


SHARED = """
version: v1
sharing:
  timeSlicing:
    renameByDefault: {renamed}
    resources:
    - name: nvidia.com/gpu
      replicas: 4
    - name: nvidia.com/mig-1g.5gb
      replicas: 3
"""


@pytest.mark.parametrize("renamed", ["true", "false"])
@pytest.mark.parametrize("strategy", list(MigStrategy))
@pytest.mark.parametrize("name", ["t4", "dgx-a100-mig-single", "dgx-a100-mig-mixed"])
def test_labels_of_shared_gpus_are_equal(
    name: str, strategy: MigStrategy, renamed: str, programs: Path
) -> None:
    """The same configuration file for both."""
    config = SHARED.format(renamed=renamed)
    with foreign(name) as there:
        theirs = feature_discovery(there, programs, strategy, config)
        ours = our_labels(there, strategy, config)

    assert theirs == ours
