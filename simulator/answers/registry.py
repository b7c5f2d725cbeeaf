# SPDX-License-Identifier: Apache-2.0
"""Register of the functions that answer for entry points.

An answer gets the entry point's inputs in the table's order. It gives one value, a
tuple where several come out, or None; or it raises Nvml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_abi.entry_point_table import TABLE
from simulator.driver.handles import DeviceHandle
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state.machine_state import Right

Answer = Callable[..., Any]
_F = TypeVar("_F", bound=Answer)

INVALID_ARGUMENT = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
NO_PERMISSION = int(pynvml.NVML_ERROR_NO_PERMISSION)
NOT_FOUND = int(pynvml.NVML_ERROR_NOT_FOUND)
NOT_SUPPORTED = int(pynvml.NVML_ERROR_NOT_SUPPORTED)

ANSWERS: dict[str, Answer] = {}
"""C name to its answer: called with the machine view and the inputs. Without one: NOT_SUPPORTED."""


def answers(*names: str) -> Callable[[_F], _F]:
    """Register a function that is called with the machine view and the inputs as they are."""

    def register(function: _F) -> _F:
        for name in names:
            _register(name, function)
        return function

    return register


def answers_on_gpu(*names: str, mig_devices: bool = False) -> Callable[[_F], _F]:
    """Register a function that is called with the GPU instead of the machine view and its handle.

    A MIG device's handle leads to its GPU with ``mig_devices``, else to NOT_SUPPORTED.
    """

    def register(function: _F) -> _F:
        def on_handle(view: MachineView, device: DeviceHandle, *rest: Any) -> Any:
            return function(_gpu(view, device, mig_devices=mig_devices), *rest)

        for name in names:
            _register(name, on_handle)
        return function

    return register


def gpu_facts(facts: Mapping[str, Callable[[SimulatedGpu], Any]], *, mig_devices: bool) -> None:
    """Register many answers that need the GPU and nothing else; ``mig_devices`` as above."""
    for name, fact in facts.items():
        answers_on_gpu(name, mig_devices=mig_devices)(fact)


def supported(value: Any) -> Any:
    """The value. Raises Nvml: NOT_SUPPORTED where the GPU has none."""
    if value is None:
        raise Nvml(NOT_SUPPORTED)
    return value


def need(has: object) -> None:
    """Raises Nvml: NOT_SUPPORTED unless the GPU has it."""
    if not has:
        raise Nvml(NOT_SUPPORTED)


def need_right(view: MachineView, right: Right) -> None:
    """Raises Nvml: NO_PERMISSION where processes on this machine lack the right."""
    if right in view.state.lacking:
        raise Nvml(NO_PERMISSION)


def _gpu(view: MachineView, device: DeviceHandle, *, mig_devices: bool) -> SimulatedGpu:
    gpu = view.gpu(device)
    if device.is_mig and not mig_devices:
        raise Nvml(NOT_SUPPORTED)
    return gpu


def _register(name: str, answer: Answer) -> None:
    if name not in TABLE or name in ANSWERS:
        raise ValueError(f"{name} is not in the table, or has an answer already")
    ANSWERS[name] = answer
