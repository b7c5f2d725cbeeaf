# SPDX-License-Identifier: Apache-2.0
"""Names of MIG devices, against the grammar of mig-parted's configuration format."""

from __future__ import annotations

import pytest

from base.errors import BadInput
from base.words import quoted
from mig.profile_names import device_name, part_name


@pytest.mark.parametrize(
    ("text", "canonical", "instance"),
    [
        ("1g.5gb", "1g.5gb", "1g.5gb"),
        ("7c.7g.40gb", "7g.40gb", "7g.40gb"),
        ("1c.3g.20gb", "1c.3g.20gb", "3g.20gb"),
        ("1g.10gb+me", "1g.10gb+me", "1g.10gb+me"),
        ("2g.48gb+me.all", "2g.48gb+me.all", "2g.48gb+me.all"),
        ("1g.24gb-me", "1g.24gb-me", "1g.24gb-me"),
        ("1g.24gb+gfx,me", "1g.24gb+gfx,me", "1g.24gb+gfx,me"),
    ],
)
def test_a_name_is_brought_to_canonical_form(text: str, canonical: str, instance: str) -> None:
    """Compute slices are named only where they are a part of the GPU instance."""
    name = device_name(text)

    assert (str(name), name.instance) == (canonical, instance)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1g",
        "1g.5",
        "1g.5GB",
        "0g.5gb",
        "0c.1g.5gb",
        "4c.3g.20gb",
        "1g.5gb+",
        "1g.5gb+1me",
        "1g.5gb+me,",
        "1g.5gb+me,me",
        "1g.5gb+me-gfx",
        "1g.5gb+.me",
        "1g.5gb+me.",
        "1g.5gb +me",
        "-1g.5gb",
        "\u0661g.5gb",
        "1g.5gb\n",
    ],
)
def test_what_is_no_name_is_refused_with_the_text(text: str) -> None:
    """With the text in question, so that a person finds it."""
    with pytest.raises(BadInput) as refused:
        device_name(text)

    assert str(refused.value).startswith(quoted(text))


@pytest.mark.parametrize(
    ("profile", "slices", "name"),
    [("3g.20gb", 3, "3g.20gb"), ("3g.20gb", 1, "1c.3g.20gb"), ("1g.5gb+me", 1, "1g.5gb+me")],
)
def test_a_device_is_named_by_its_profile_and_slices(profile: str, slices: int, name: str) -> None:
    assert part_name(profile, slices) == name
