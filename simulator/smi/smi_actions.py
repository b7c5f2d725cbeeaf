# SPDX-License-Identifier: Apache-2.0
"""What nvidia-smi does to a simulated machine, and what it prints.

Exit codes are those of nvidia-smi(1), "RETURN VALUE". Of its messages the parts that programs and
people look for are here: from the NVIDIA MIG user guide, NVIDIA/gpu-operator issue 118,
NVIDIA/mig-parted issue 181 and NVIDIA/NVSentinel issue 1690. Nothing is published of a reset of
several GPUs one of which is refused: here none is reset then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pynvml

from discovery.bus_id import normal_bus_id
from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_abi.entry_point_table import TABLE
from simulator.answers.identity import pci_address
from simulator.description.machine_schema import Gpu
from simulator.driver import clients
from simulator.driver.calling_process import CallingProcess
from simulator.driver.fault_injection import matching_faults
from simulator.driver.reset_wait import wait_for_resets
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.simulation import Simulation
from simulator.smi.smi_arguments import smi_command
from simulator.state import gpu_reset, mig_mode
from simulator.state.machine_state import MachineState, NvmlClient, Return
from simulator.state.reset_peers import missing_peers

_SUCCESS: Final = int(pynvml.NVML_SUCCESS)
_INVALID: Final = 2
_NOT_SUPPORTED: Final = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
_NO_PERMISSION: Final = int(pynvml.NVML_ERROR_NO_PERMISSION)
_NO_DEVICE: Final = int(pynvml.NVML_ERROR_NOT_FOUND)
_NO_DRIVER: Final = int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_IN_USE: Final = int(pynvml.NVML_ERROR_IN_USE)
_OTHER: Final = 255
_GUESTS: Final = (mig_mode.PASSTHROUGH, int(pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU))
_OPEN: Final = "nvmlDeviceGetHandleByPciBusId_v2"

_WORDS: Final[Mapping[int, str]] = {
    _IN_USE: "In use by another client",
    _NOT_SUPPORTED: "Not Supported",
    _NO_PERMISSION: "Insufficient Permissions",
    gpu_reset.LOST: "GPU is lost",
    int(pynvml.NVML_ERROR_RESET_REQUIRED): "GPU requires reset",
}
_ENDINGS: Final = "Please first kill all processes using"


@dataclass(frozen=True, slots=True)
class SmiAnswer:
    """How a run of nvidia-smi ends."""

    code: int
    """Exit code."""
    text: str
    """Standard output."""


class _Refused(Exception):
    """Nothing was changed."""

    def __init__(self, answer: SmiAnswer) -> None:
        super().__init__(answer.text)
        self.answer = answer


def run_smi(simulation: Simulation, arguments: Sequence[str], caller: CallingProcess) -> SmiAnswer:
    """Run nvidia-smi as the process ``caller``. Raises Nvml where that has gone meanwhile."""
    state = simulation.state
    if state.driver != "ok" or state.machine is None:
        return SmiAnswer(_NO_DRIVER, "NVIDIA-SMI has failed: the NVIDIA driver is not running.\n")
    command = smi_command(arguments)
    if command is None:
        text = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
        return SmiAnswer(_INVALID, text)
    gpus = _chosen(MachineView(state, state.machine, simulation.clock).gpus, command.ids)
    if not gpus:
        return SmiAnswer(_NO_DEVICE, "No devices were found\n")
    if command.mig is None:
        return _reset(simulation, tuple(gpu.spec.bus_id for gpu in gpus), caller)
    return _set_mode(simulation, gpus, caller, on=command.mig)


def _chosen(gpus: Sequence[SimulatedGpu], ids: Sequence[str] | None) -> tuple[SimulatedGpu, ...]:
    """The GPUs of these ids, each once; none where one of the ids is nobody's."""
    names = {
        name: gpu
        for index, gpu in enumerate(gpus)
        for name in (str(index), gpu.spec.bus_id, gpu.uuid, gpu.serial)
    }
    if ids is None:
        return tuple(gpus)
    found = dict.fromkeys(_normal(name) for name in ids)
    return tuple(names[name] for name in found) if found.keys() <= names.keys() else ()


def _normal(name: str) -> str:
    try:
        return normal_bus_id(name)
    except ValueError:
        return name


# --gpu-reset


def _reset(simulation: Simulation, bus_ids: Sequence[str], caller: CallingProcess) -> SmiAnswer:
    """Reset the GPUs together, or none."""

    def begin(state: MachineState) -> MachineState:
        refusal = _refusal(state, bus_ids, caller.client)
        if refusal is not None:
            raise _Refused(refusal)
        for bus_id in bus_ids:
            state = gpu_reset.begun(state, bus_id, simulation.clock())
        return state

    try:
        code = gpu_reset.result_code(simulation.change(begin))
    except _Refused as refused:
        return refused.answer
    wait_for_resets(bus_ids, lambda: simulation.state, caller.has_gone)
    simulation.edit(lambda state: state)  # which notes that the resets have ended
    if code == _SUCCESS:
        lines = (f"GPU {_shown(bus_id)} was successfully reset.\n" for bus_id in bus_ids)
        return SmiAnswer(_SUCCESS, "".join(lines))
    return _not_reset(bus_ids, code)


def _refusal(state: MachineState, bus_ids: Sequence[str], caller: NvmlClient) -> SmiAnswer | None:
    """Why these GPUs are not reset. Processes that have ended are not in the state."""
    if "root" in state.lacking:
        return _not_reset(bus_ids, _NO_PERMISSION)
    if lost := [bus_id for bus_id in bus_ids if _is_lost(state, bus_id)]:
        return _not_reset(lost, gpu_reset.LOST)
    guests = {gpu.bus_id for gpu in _specs(state) if gpu.virtualization in _GUESTS}
    if refused := [bus_id for bus_id in bus_ids if bus_id in guests]:
        lines = (f"Resetting GPU {_shown(bus_id)} is not supported.\n" for bus_id in refused)
        return SmiAnswer(_NOT_SUPPORTED, "".join(lines))
    if peers := missing_peers(state, frozenset(bus_ids)):
        text = "These GPUs are joined by NVLink and have to be reset in the same command:\n"
        return SmiAnswer(_OTHER, text + "".join(f"  GPU {_shown(gpu)}\n" for gpu in sorted(peers)))
    used = {process.bus_id for process in state.processes}
    if clients.live(state.clients) - {caller}:
        used |= set(bus_ids)
    held = [bus_id for bus_id in bus_ids if bus_id in used]
    return _not_reset(held, _IN_USE) if held else None


def _specs(state: MachineState) -> Sequence[Gpu]:
    return state.machine.gpus if state.machine else ()


def _is_lost(state: MachineState, bus_id: str) -> bool:
    """It cannot be opened: lost, or in the middle of a reset."""
    faults = matching_faults(state, _OPEN, (bus_id,))
    lost = any(isinstance(f.action, Return) and f.action.code == gpu_reset.LOST for f in faults)
    return lost or gpu_reset.is_resetting(state, bus_id)


def _not_reset(bus_ids: Sequence[str], code: int) -> SmiAnswer:
    """The list of GPUs that could not be reset, with the reason."""
    why = _WORDS.get(code, "Unknown Error")
    lines = "".join(f"  GPU {_shown(bus_id)}: {why}\n" for bus_id in bus_ids)
    text = f"The following GPUs could not be reset:\n{lines}"
    if code == _IN_USE:
        devices = "1 device is" if len(bus_ids) == 1 else f"{len(bus_ids)} devices are"
        text += (
            f"\n{devices} currently being used by one or more other processes. {_ENDINGS} them.\n"
        )
    known = code in (_NO_PERMISSION, gpu_reset.LOST)
    return SmiAnswer(code if known else _OTHER, text)


# -mig


def _set_mode(
    simulation: Simulation, gpus: Sequence[SimulatedGpu], caller: CallingProcess, *, on: bool
) -> SmiAnswer:
    """Change the mode of one GPU after the other, by NVML as any other program."""
    driver = simulation.driver(caller)
    text = ""
    try:
        driver.call(TABLE["nvmlInit_v2"], ())
        for gpu in gpus:
            name = _shown(gpu.spec.bus_id)
            try:
                outcome = driver.call(TABLE["nvmlDeviceSetMigMode"], (gpu.handle, int(on)))
            except Nvml as error:
                text += f"Unable to {'enable' if on else 'disable'} MIG Mode for GPU {name}:"
                text += f" {_WORDS.get(error.code, 'Unknown Error')}\n"
                if error.code != _NOT_SUPPORTED:
                    text += "Terminating early due to previous errors.\n"
                    return SmiAnswer(_exit_code(error.code), text)
                text += "Treating as warning and moving on.\n"
                continue
            [status] = outcome.values
            text += _mode_text(name, int(str(status)), on=on)
    finally:
        driver.close()
    return SmiAnswer(_SUCCESS, text + "All done.\n")


def _exit_code(code: int) -> int:
    known = (_INVALID, _NOT_SUPPORTED, _NO_PERMISSION, _NO_DEVICE, _NO_DRIVER, gpu_reset.LOST)
    return code if code in known else _OTHER


def _mode_text(name: str, status: int, *, on: bool) -> str:
    """Line on a change of the mode, by its activation status."""
    if status == _SUCCESS:
        return f"{'Enabled' if on else 'Disabled'} MIG Mode for GPU {name}\n"
    word, why = "enable" if on else "disable", _WORDS.get(status, "Unknown Error")
    text = f"Warning: MIG mode is in pending {word} state for GPU {name}:{why}\n"
    if status == _IN_USE:
        return f"{text}{name} is currently being used by other processes. {_ENDINGS} the device.\n"
    return f"{text}Reboot the system or try nvidia-smi --gpu-reset on GPU {name}\n"


def _shown(bus_id: str) -> str:
    return str(pci_address(bus_id)["busId"])
