# SPDX-License-Identifier: Apache-2.0
"""A profile of another GPU leads to this GPU's own of the same slices, by NVIDIA's tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from base.errors import BadInput
from mig.configs.config_choice import LayoutChoice, config_layouts
from mig.configs.layout_annotation import parse_layout_annotation
from mig.configs.mig_configs import MigConfig
from mig.profile_names import profile_hint
from simulator.description.machine_catalog import load_models
from tests.mig.mig_gpus import mig_gpu

A100_40: Final = "7 1g.5gb, 4 1g.10gb, 3 2g.10gb, 2 3g.20gb, 1 4g.20gb, 1 7g.40gb"
GB_80: Final = "7 1g.10gb, 4 1g.20gb, 3 2g.20gb, 2 3g.40gb, 1 4g.40gb, 1 7g.80gb"
GB_96: Final = "7 1g.12gb, 4 1g.24gb, 3 2g.24gb, 2 3g.48gb, 1 4g.48gb, 1 7g.96gb"
PUBLISHED: Final[Mapping[str, str]] = {
    "a30": "4 1g.6gb, 2 2g.12gb, 1 4g.24gb",
    "a100-sxm4-40gb": A100_40,
    "a100-pcie-40gb": A100_40,
    "a100-sxm4-80gb": GB_80,
    "h100-sxm5-80gb": GB_80,
    "a800-sxm4-80gb": GB_80,
    "h20-96gb": GB_96,
    "gh200-96gb": GB_96,
    "b300-sxm-270gb": "7 1g.34gb, 4 1g.67gb, 3 2g.67gb, 2 3g.135gb, 1 4g.135gb, 1 7g.269gb",
    "gb300": "7 1g.35gb, 4 1g.70gb, 3 2g.70gb, 2 3g.139gb, 1 4g.139gb, 1 7g.278gb",
    "h200-sxm-141gb": "7 1g.18gb, 4 1g.35gb, 3 2g.35gb, 2 3g.71gb, 1 4g.71gb, 1 7g.141gb",
    "b200-sxm-180gb": "7 1g.23gb, 4 1g.45gb, 3 2g.45gb, 2 3g.90gb, 1 4g.90gb, 1 7g.180gb",
    "gb200": "7 1g.23gb, 4 1g.47gb, 3 2g.47gb, 2 3g.93gb, 1 4g.93gb, 1 7g.186gb",
    "rtx-pro-6000": "4 1g.24gb, 2 2g.48gb, 1 4g.96gb",
}
"""Simulated model to the counts and profiles of NVIDIA's MIG user guide, "Supported MIG
profiles", without those of media and graphics; of B300 and GB300 those of the GPU operator's
default-mig-parted-config."""
WITH_MIG: Final = sorted(name for name, model in load_models().items() if model.mig)


def usual(model: str) -> dict[str, str]:
    """Slices to the profile of which the published table allows the most instances."""
    rows = [row.split() for row in PUBLISHED[model].split(", ")]
    ranked = sorted((int(count), profile) for count, profile in rows)
    return {profile.partition(".")[0]: profile for _, profile in ranked}


def refusal(model: str, profile: str) -> str:
    """What a layout of the profile is refused with on a GPU of the model."""
    asked = parse_layout_annotation(f'{{"0": {{"{profile}": 1}}}}')
    assert isinstance(asked, MigConfig)
    with pytest.raises(BadInput) as error:
        config_layouts(asked, [mig_gpu(0, model)])
    return str(error.value)


def test_every_simulated_model_has_a_published_table() -> None:
    assert sorted(PUBLISHED) == WITH_MIG


@pytest.mark.parametrize("model", WITH_MIG)
def test_a_profile_of_another_model_leads_to_the_same_slices_of_this_one(model: str) -> None:
    own = {profile for row in PUBLISHED[model].split(", ") for profile in row.split()[1:]}
    foreign = {row.split()[1] for table in PUBLISHED.values() for row in table.split(", ")}
    for profile in sorted(foreign - own):
        close = usual(model).get(profile.partition(".")[0])
        end = f": did you mean {close}?" if close else "; it has "
        assert end in refusal(model, profile), profile


@pytest.mark.parametrize(
    ("model", "profile", "close"),
    [
        ("b200-sxm-180gb", "2g.20gb", "2g.45gb"),
        ("a100-sxm4-80gb", "1g.5gb", "1g.10gb"),
        ("a100-sxm4-80gb", "1g.5gb+me", "1g.10gb+me"),
        ("a100-sxm4-80gb", "1c.3g.20gb", "3g.40gb"),
        ("rtx-pro-6000", "1g.10gb+me", "1g.24gb+me"),
    ],
)
def test_slices_and_attributes_are_what_is_meant(model: str, profile: str, close: str) -> None:
    assert refusal(model, profile).endswith(f": did you mean {close}?")


def test_a_profile_that_a_model_has_nothing_like_is_answered_with_what_there_is() -> None:
    assert "; it has 1g.6gb, " in refusal("a30", "3g.20gb")
    assert "; it has 1g.5gb, " in refusal("a100-sxm4-40gb", "1g.24gb+gfx")


def test_configurations_and_resources_lead_by_the_profile_in_their_name() -> None:
    with pytest.raises(BadInput, match=r"'all-1g\.5gb\.me': did you mean all-1g\.10gb\.me\?"):
        LayoutChoice(layout="all-1g.5gb.me").gpu_layouts([mig_gpu(0, "a100-sxm4-80gb")])
    offered = ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.20gb", "nvidia.com/mig-3g.40gb")
    hint = profile_hint("nvidia.com/mig-1g.5gb", offered, "nvidia.com/mig-")
    assert hint == ": did you mean nvidia.com/mig-1g.10gb?"
    assert profile_hint("nvidia.com/mig-4g.20gb", offered, "nvidia.com/mig-") == ""


def test_a_name_without_a_profile_is_compared_by_its_spelling() -> None:
    assert profile_hint("all-balanced", ("all-balance", "x"), "all-") == (
        ": did you mean all-balance?"
    )
    assert profile_hint("all-1g.1gbb", ("all-1g.10gb",), "all-") == ": did you mean all-1g.10gb?"
