# SPDX-License-Identifier: Apache-2.0
"""Machines whose MIG layout is changed through pynvml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.description.machine_catalog import load_models
from simulator.simulation import Simulation
from tests import machines

Machine = Callable[..., Simulation]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One GPU of a model, or ``count`` of them, with facts of the GPUs."""

    def made(model: str = "a100-sxm4-40gb", *, count: int = 1, **facts: Any) -> Simulation:
        gpus = [machines.gpu(at, model=model, **facts) for at in range(count)]
        return machines.simulation(tmp_path / "machine", *gpus, models=load_models())

    return made
