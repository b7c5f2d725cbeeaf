# SPDX-License-Identifier: Apache-2.0
"""nvidia-mig-parted reads what we write, and whatever file we take: we are only ever stricter."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from base.errors import BadInput
from mig.configs.default_configs import generated_configs, listed_configs
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_config_text import mig_config_text
from mig.configs.mig_configs import MigConfig
from mig.layout_export import present_config
from simulator.description.machine_catalog import load_models
from tests.conftest import SCALE
from tests.mig.mig_gpus import A100, ON, instance, mig_gpu

pytestmark = pytest.mark.cluster

CHANGED = 400 * SCALE
"""Texts; about one in ten is right and goes to nvidia-mig-parted."""

TEXT = """\
version: v1
mig-configs:
  one:
  - device-filter: ["0x20B010DE", "0x233010DE"]
    devices: [0, 1]
    mig-enabled: true
    mig-devices: {"1g.5gb": 2, "1c.3g.20gb": 3, "1g.24gb-me": 0}
  - devices: all
    mig-enabled: false
"""


def is_valid(programs: Path, file: Path, config: str) -> bool:
    """Whether nvidia-mig-parted reads the file and finds the configuration in it."""
    asserted = ("assert", "--valid-config", "-f", file, "-c", config)
    done = subprocess.run(
        [programs / "nvidia-mig-parted", *asserted], capture_output=True, text=True, check=False
    )
    return done.returncode == 0


def refused(programs: Path, folder: Path, configs: tuple[MigConfig, ...]) -> list[str]:
    """Those of our configurations that it does not find in what we write."""
    file = folder / "config.yaml"
    file.write_text(mig_config_text(configs), encoding="utf-8")
    return [one.name for one in configs if not is_valid(programs, file, one.name)]


def test_it_reads_the_default_configurations(programs: Path, tmp_path: Path) -> None:
    assert refused(programs, tmp_path, listed_configs().configs) == []


def test_it_reads_those_generated_for_a_node_of_all_models(programs: Path, tmp_path: Path) -> None:
    models = [name for name, model in load_models().items() if model.mig]
    gpus = [mig_gpu(at, name) for at, name in enumerate(models)]

    assert refused(programs, tmp_path, generated_configs(gpus).configs) == []


def test_it_reads_a_present_layout_and_names_of_all_kinds(programs: Path, tmp_path: Path) -> None:
    gpu = mig_gpu(0, A100, instance(1, "3g.20gb", 4, 2, 1), instance(7, "1g.5gb", 0, 1), mode=ON)
    names = ["y", "1e3", "null", "~", " a ", "a: b", '"', "ä", "\U0001f600", "\x85", "0x1", "<<"]
    configs = tuple(present_config([gpu, mig_gpu(1)], name) for name in names)

    assert refused(programs, tmp_path, configs) == []


def test_it_does_not_find_what_is_not_there(programs: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(mig_config_text(listed_configs().configs), encoding="utf-8")

    assert not is_valid(programs, file, "all-1g.11gb")
    file.write_text(TEXT.replace("1g.5gb", "1g.5g"), encoding="utf-8")
    assert not is_valid(programs, file, "one")


def test_whatever_changed_text_we_take_it_takes_too(programs: Path, tmp_path: Path) -> None:
    """The other way round we refuse more, which docs/mig.md lists."""
    file = tmp_path / "config.yaml"
    taken = 0
    for text in changed_texts(random.Random("mig-parted")):  # noqa: S311  # the same each time
        try:
            found = parse_mig_configs(text, "f")
        except BadInput:
            continue
        taken += 1
        file.write_text(text, encoding="utf-8")
        assert [one.name for one in found.configs if not is_valid(programs, file, one.name)] == []
    assert taken > CHANGED // 20


STRICTER = {
    "a filter of letters": "{device-filter: A100, devices: all, mig-enabled: false}",
    "another vendor": '{device-filter: "0x20B010DF", devices: all, mig-enabled: false}',
    "no index": "{devices: [], mig-enabled: false}",
    "a high index": "{devices: [5000], mig-enabled: false}",
    "no mode": "{devices: all, mig-enabled: }",
    "two spellings": "{devices: all, mig-enabled: true, mig-devices: {3g.1gb: 1, 3c.3g.1gb: 1}}",
    "many": '{devices: [0], mig-enabled: true, mig-devices: {"1g.5gb": 65}}',
    "hex": '{devices: [0], mig-enabled: true, mig-devices: {"1g.5gb": 0x7}}',
    "octal": "{devices: [010], mig-enabled: false}",
    "a fraction": '{devices: [0], mig-enabled: true, mig-devices: {"1g.5gb": 7.0}}',
    "a key twice": "{devices: all, devices: [0], mig-enabled: false}",
}
"""What docs/mig.md lists as read by upstream and refused here."""


@pytest.mark.parametrize("kind", STRICTER)
def test_what_the_page_lists_as_stricter_is_read_by_it(
    programs: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "config.yaml"
    text = f"version: v1\nmig-configs:\n  one:\n  - {STRICTER[kind]}\n"
    file.write_text(text, encoding="utf-8")

    assert is_valid(programs, file, "one")
    with pytest.raises(BadInput, match=r"^f:4: mig-configs\.one"):
        parse_mig_configs(text, "f")


@pytest.mark.parametrize(("name", "theirs"), [("on", "true"), ("y", "true"), ("1e3", "1000")])
def test_it_has_another_name_for_one_without_quotes(
    programs: Path, tmp_path: Path, name: str, theirs: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(TEXT.replace("one:", f"{name}:"), encoding="utf-8")

    assert is_valid(programs, file, theirs)
    assert not is_valid(programs, file, name)


def changed_texts(choice: random.Random) -> list[str]:
    """The text with one or two words that are others."""
    spans = [found.span() for found in re.finditer(r'"[^"]*"|[\w.-]+|[][{},:]+', TEXT)]
    words = [TEXT[slice(*span)] for span in spans]
    words += ["yes", "Off", "y", "null", "0", "7", "01", "1.0", "0x1", '"0x20B010DE"', "{}", ""]
    words += [
        "N",
        "1e3",
        "0o7",
        "=",
        ".5",
        "1.",
        "2001-01-01",
        "1:30",
        "0b1",
        "+1",
        "1_0",
        "~",
        "_1",
    ]
    words += ['"548409566"', '"7c.7g.40gb"', '"1g.5gb+me"', '"1g.5gb+me.all,gfx"', "[]", "'x'"]
    return [_changed(choice, spans, words) for _ in range(CHANGED)]


def _changed(choice: random.Random, spans: list[tuple[int, int]], words: list[str]) -> str:
    text = TEXT
    for start, end in sorted(choice.sample(spans, choice.choice([1, 1, 2])), reverse=True):
        text = text[:start] + choice.choice(words) + text[end:]
    return text
