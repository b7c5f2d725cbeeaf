# SPDX-License-Identifier: Apache-2.0
"""nvidia-mig-parted applies configurations, unchanged, to simulated GPUs.

It creates, destroys and changes the mode by NVML, tries orders until one fits, and starts
nvidia-smi where a reset is needed. What it applied it asserts and exports; our reader, our export,
gpu-feature-discovery, nvitop and gpustat see the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu, MigReading
from mig.configs.default_configs import listed_configs
from mig.configs.mig_config_text import mig_config_text
from mig.gpu_layout import current_layout
from simulator.description.machine_catalog import load_machine, machine_names
from simulator.description.machine_schema import Model
from tests.conftest import SCALE
from tests.foreign.discovered import discovered, layouts, printed_by
from tests.foreign.gpu_feature_discovery import feature_discovery, our_labels
from tests.foreign.mig_layouts import Layout, by_index, exported_document, in_full
from tests.foreign.parted_node import (
    FIRST_GPUS,
    MODELS,
    PartedNode,
    parted_node,
    with_gpus,
    with_one,
)
from tests.foreign.test_gpustat import row as gpustat_row
from tests.foreign.test_nvitop import DEVICES as NVITOP
from tests.foreign.test_nvitop import row as nvitop_row
from tests.observed import look_at, mig_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TRIED: Final = list(FIRST_GPUS) if SCALE > 1 else ["a100-sxm4-40gb", "h100-sxm5-80gb"]
"""One with resets and one without."""
NEWER: Final = ("b200-sxm-180gb", "gb200", "b300-sxm-270gb", "gb300", "rtx-pro-6000")
"""0.10.0 has no default configurations for these: it gets our list, which has upstream's of now."""
FEW: Final = ("all-balanced", "all-1g.10gb.me", "all-1g.5gb.me")
"""The configurations that `make test` tries."""
WHOLE: Final = (
    [
        name
        for name in machine_names()
        if load_machine(name).driver
        and any(MODELS[gpu.model].mig for gpu in load_machine(name).gpus)
    ]
    if SCALE > 1
    else ["mixed"]
)
"""Machines that are tried with all their GPUs; a run on eight takes half a minute."""


def applied(node: PartedNode, config: str, *, asserts: bool = True) -> dict[int, Layout]:
    """What our reader finds after it applied and asserted a configuration."""
    for verb, succeeds in (("apply", True), ("assert", asserts)):
        done = node.run(verb, config)
        assert (done.returncode == 0) == succeeds, (config, verb, done.stderr[-2000:])
    return read(node)


def read(node: PartedNode) -> dict[int, Layout]:
    """GPU index to its layout, by our reader; nothing may be pending."""
    gpus = [whole(gpu) for gpu in mig_of(node.there.simulation)]
    assert all(gpu.mode is None or gpu.mode.current == gpu.mode.pending for gpu in gpus)
    found = [current_layout(gpu) for gpu in gpus]
    return {at: (layout.mig, layout.devices()) for at, layout in enumerate(found)}


def judged(node: PartedNode) -> dict[int, Layout]:
    """The same, after every other program has seen it so too."""
    there, programs = node.there, node.programs
    document = exported_document(there, programs)
    found = read(node)
    assert found == layouts(discovered(there)) == by_index(document, there.simulation)
    assert in_full(printed_by(there, "mig", "export")) == in_full(document)
    for strategy in MigStrategy:
        theirs = feature_discovery(there, programs, strategy)
        assert theirs == our_labels(there, strategy), strategy
    seen = look_at(there.simulation, "node-a")
    devices = json.loads(there.python("-c", NVITOP))
    assert devices == [nvitop_row(gpu) for gpu in seen.snapshot.gpus]
    shown = json.loads(there.python("-m", "gpustat", "--json"))["gpus"]
    samples = {sample.bus_id: sample for sample in seen.samples}
    rows = [gpustat_row(gpu, samples[gpu.bus_id])[:4] for gpu in seen.snapshot.gpus]
    columns = ("index", "name", "uuid", "memory.total")
    assert [[gpu[column] for column in columns] for gpu in shown] == rows
    return found


@pytest.mark.parametrize("model", TRIED)
def test_every_default_configuration_of_a_model_is_applied(model: str, programs: Path) -> None:
    """One after the other on one GPU, from whatever the last one left; on and off at the end."""
    text = default_configs(programs)
    if model in NEWER:
        text = mig_config_text(listed_configs().configs)
    wanted = meant_by(text, MODELS[model])
    assert {name for layout in wanted.values() for name in layout} == {
        profile.name for profile in MODELS[model].mig
    }
    tried = [config for config in wanted if SCALE > 1 or config in FEW]

    with parted_node(with_one(model), programs, text) as it:
        for config in tried:
            assert applied(it, config) == {0: (True, wanted[config])}
        assert applied(it, "all-enabled") == {0: (True, Counter())}
        assert applied(it, "all-disabled") == {0: (False, Counter())}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_machine_is_laid_out_and_back(name: str, programs: Path) -> None:
    """GPUs without MIG among them are left alone; all others change their mode in one run.

    With such GPUs its assert fails after its apply succeeded, as it wants each GPU in the
    configuration: mig-parted#129.
    """
    gpus = load_machine(name).gpus
    with parted_node(with_gpus(name, gpus), programs, default_configs(programs)) as it:
        every = all(MODELS[gpu.model].mig for gpu in gpus)
        laid_out = applied(it, "all-balanced", asserts=every)
        whole = applied(it, "all-disabled")

    capable = [bool(MODELS[gpu.model].mig) for gpu in gpus]
    assert [mode for mode, _ in laid_out.values()] == capable
    assert [sum(devices.values()) for _, devices in laid_out.values()] == [4 * it for it in capable]
    assert all(one == (False, Counter()) for one in whole.values())


CUSTOM: Final = """\
version: v1
mig-configs:
  four-ways:
  - {devices: [0], mig-enabled: false}
  - {devices: [1], mig-enabled: true, mig-devices: {}}
  - {devices: [2], mig-enabled: true, mig-devices: {"1g.10gb+me": 1, 2g.20gb: 1, 3g.40gb: 1}}
  - {devices: [3], mig-enabled: true, mig-devices: {1c.3g.40gb: 3, 2c.4g.40gb: 2}}
  turned-round:
  - {devices: [0, 2], mig-enabled: true, mig-devices: {1g.20gb: 4}}
  - {devices: [1], mig-enabled: true, mig-devices: {7g.80gb: 1}}
  - {devices: [3], mig-enabled: false}
  all-disabled:
  - {devices: all, mig-enabled: false}
"""


def test_every_program_sees_the_layouts_of_a_custom_configuration(programs: Path) -> None:
    """Off, on and empty, mixed, and parts of instances, on one node; then others on each GPU."""
    four = with_gpus("hgx-h100", load_machine("hgx-h100").gpus[:4])
    with parted_node(four, programs, CUSTOM) as it:
        applied(it, "four-ways")
        assert judged(it) == {
            0: (False, Counter()),
            1: (True, Counter()),
            2: (True, Counter({"1g.10gb+me": 1, "2g.20gb": 1, "3g.40gb": 1})),
            3: (True, Counter({"1c.3g.40gb": 3, "2c.4g.40gb": 2})),
        }
        applied(it, "turned-round")
        seen = judged if SCALE > 1 else read
        doubled = (True, Counter({"1g.20gb": 4}))
        whole = (True, Counter({"7g.80gb": 1}))
        assert seen(it) == {0: doubled, 1: whole, 2: doubled, 3: (False, Counter())}
        applied(it, "all-disabled")
        assert seen(it) == dict.fromkeys(range(4), (False, Counter()))


def whole(found: MigReading) -> MigGpu:
    """A GPU that was read in full; any other fails the test."""
    assert isinstance(found, MigGpu), found
    return found


def default_configs(programs: Path) -> str:
    """The file of default configurations that mig-parted ships."""
    return (programs / "config-default.yaml").read_text("utf-8")


def meant_by(text: str, model: Model) -> Mapping[str, Counter[str]]:
    """The configurations in a file that this model can have, with the layout of each."""
    document = yaml.safe_load(text)
    profiles = {profile.name for profile in model.mig}
    found = {}
    for config, specs in document["mig-configs"].items():
        matching = [spec for spec in specs if spec["mig-enabled"] and _meant(spec, model)]
        for spec in matching:
            wanted = Counter(spec.get("mig-devices", {}))
            if wanted and set(wanted) <= profiles:
                found[config] = wanted
    return found


def _meant(spec: Mapping[str, Any], model: Model) -> bool:
    filters = spec.get("device-filter", [])
    wanted = [filters] if isinstance(filters, str) else filters
    return not wanted or model.device_id in {int(text, 16) for text in wanted}
