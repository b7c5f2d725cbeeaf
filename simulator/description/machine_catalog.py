# SPDX-License-Identifier: Apache-2.0
"""The simulated machines that come with gpuscape, and those people write themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from base.errors import BadInput
from base.files import read_text
from simulator.description.document import parse_document, spelling_hint
from simulator.description.machine_checks import problems
from simulator.description.machine_schema import MachineDescription, Model

_DATA = resources.files("simulator")
_SUFFIX = ".yaml"


@cache
def machine_names() -> tuple[str, ...]:
    """Names that :func:`load_machine` takes, sorted."""
    files = (_DATA / "machines").iterdir()
    return tuple(sorted(f.name.removesuffix(_SUFFIX) for f in files if f.name.endswith(_SUFFIX)))


@cache
def load_machine(name: str) -> MachineDescription:
    """A machine that comes with gpuscape. Raises BadInput for a name it does not know."""
    if name not in machine_names():
        raise BadInput(f"there is no machine {name!r}; {spelling_hint(name, machine_names())}")
    file = f"machines/{name}{_SUFFIX}"
    return _checked((_DATA / file).read_text("utf-8"), file)


@cache
def load_models() -> Mapping[str, Model]:
    """Every GPU model by its key, as machines name it."""
    models, _ = parse_document(
        (_DATA / "models.yaml").read_text("utf-8"), "models.yaml", dict[str, Model]
    )
    return MappingProxyType(models)


def read_machine_file(path: Path) -> MachineDescription:
    """A machine from a person's own file; its GPUs are of the known models, or of its own.

    Raises BadInput that names the file, the line, the key and the fix.
    """
    return _checked(read_text(path, "machine file"), str(path))


def _checked(text: str, source: str) -> MachineDescription:
    """The machine in ``text``; raises BadInput for the first thing wrong with it."""
    machine, document = parse_document(text, source, MachineDescription)
    for problem in problems(machine, load_models()):
        raise document.at(problem.place).wrong(problem.text)
    return machine
