# SPDX-License-Identifier: Apache-2.0
"""Command lines of nvidia-smi, as its manual page spells them."""

from __future__ import annotations

import pytest

from simulator.smi.smi_arguments import SmiCommand, smi_command

IDS = "0000:10:00.0,00000000:11:00.0"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("--gpu-reset", SmiCommand()),
        (f"--gpu-reset -i {IDS}", SmiCommand(ids=tuple(IDS.split(",")))),
        ("-i 3 -r", SmiCommand(ids=("3",))),
        ("--id=GPU-aa -r", SmiCommand(ids=("GPU-aa",))),
        ("-i 0 -mig 1", SmiCommand(ids=("0",), mig=True)),
        ("-mig DISABLED", SmiCommand(mig=False)),
        ("--multi-instance-gpu=ENABLED -i 0,1", SmiCommand(ids=("0", "1"), mig=True)),
    ],
)
def test_what_the_manual_has_is_known(line: str, command: SmiCommand) -> None:
    assert smi_command(line.split()) == command


@pytest.mark.parametrize(
    "line",
    ["", "-i 0", "-q", "-mig", "-mig 2", "-mig 1 -r", "-r=1", "-r -i", "-mig 0 -mig 1", "-r 0"],
)
def test_anything_else_is_refused(line: str) -> None:
    assert smi_command(line.split()) is None
