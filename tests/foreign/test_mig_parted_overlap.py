# SPDX-License-Identifier: Apache-2.0
"""Entries of a configuration that match one GPU: nvidia-mig-parted ends in the last one's layout.

So does our reader with :attr:`Overlap.LAST`. The program applies and asserts each configuration on
two simulated GPUs of different models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from discovery.mig_state import MigGpu
from mig.configs.config_choice import config_layouts
from mig.configs.config_overlap import Overlap
from mig.configs.mig_config_file import parse_mig_configs
from mig.gpu_layout import current_layout
from simulator.description.machine_catalog import load_machine
from tests.conftest import SCALE
from tests.foreign.parted_node import PartedNode, parted_node, with_gpus
from tests.observed import mig_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TRIED: Final = 3 * SCALE
ENTRIES: Final = 4
MODELS: Final = {
    "a100-sxm4-40gb": ("0x20B010DE", ("1g.5gb: 7", "3g.20gb: 2", "2g.10gb: 3", "7g.40gb: 1")),
    "h100-sxm5-80gb": ("0x233010DE", ("4g.40gb: 1", "3g.40gb: 2", "2g.20gb: 3", "7g.80gb: 1")),
}
"""Model to its filter and to layouts of it; 0.10.0 takes the H100's 1g.10gb for another profile."""


def random_text(choice: random.Random) -> str:
    """A configuration whose entries have few GPUs to choose from, so that most overlap.

    The first entry is for all GPUs, so that none is left out.
    """
    entries = [("", "all", "")]
    for _ in range(ENTRIES):
        gpu = choice.randrange(len(MODELS))
        ids, layouts = tuple(MODELS.values())[gpu]
        filters, devices = choice.choice([("", f"[{gpu}]"), (f'"{ids}"', "all")])
        entries.append((filters, devices, choice.choice(layouts)))
    lines = (
        f"  - {{device-filter: {filters or '[]'}, devices: {devices}, mig-enabled: true,"
        f" mig-devices: {{{layout}}}}}\n"
        for filters, devices, layout in entries
    )
    return "version: v1\nmig-configs:\n  tried:\n" + "".join(lines)


def gpus_of(node: PartedNode) -> Sequence[MigGpu]:
    return [gpu for gpu in mig_of(node.there.simulation) if isinstance(gpu, MigGpu)]


def test_the_layouts_are_those_that_the_program_ends_in(programs: Path) -> None:
    choice = random.Random("overlap")  # noqa: S311  # the same each time
    places = load_machine("dgx-a100").gpus
    gpus = [replace(gpu, model=model) for gpu, model in zip(places, MODELS, strict=False)]
    overlapping = 0

    with parted_node(with_gpus("dgx-a100", gpus), programs, "") as node:
        for _ in range(TRIED):
            text = random_text(choice)
            node.configure(text)
            for verb in ("apply", "assert"):
                done = node.run(verb, "tried")
                assert done.returncode == 0, f"{verb}\n{text}\n{done.stderr[-2000:]}"
            found = gpus_of(node)
            config = parse_mig_configs(text, "f", Overlap.LAST).selected()
            desired = config_layouts(config, found)
            overlapping += len({spec.layout for spec in config.specs}) > len(MODELS)
            made = {gpu.uuid: current_layout(gpu).devices() for gpu in found}
            assert {uuid: layout.devices() for uuid, layout in desired.items()} == made, text
    assert overlapping > TRIED // 2
