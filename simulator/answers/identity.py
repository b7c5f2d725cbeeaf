# SPDX-License-Identifier: Apache-2.0
"""Names, numbers and addresses that identify a GPU."""

from __future__ import annotations

import zlib
from typing import Any

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    answers,
    answers_on_gpu,
    gpu_facts,
    need,
)
from simulator.driver.handles import DeviceHandle
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state import mig_geometry

_VGPU_FEATURE = 1  # NVML_GRID_LICENSE_FEATURE_CODE_VGPU


@answers("nvmlDeviceGetName")
def name(view: MachineView, device: DeviceHandle) -> str:
    """The model; a MIG device adds its profile."""
    gpu = view.gpu(device)
    if not device.is_mig:
        return gpu.model.name
    profile, _, compute = view.mig_device(device)
    return f"{gpu.model.name} MIG {mig_geometry.compute_profile_name(profile, compute.slices)}"


@answers("nvmlDeviceGetUUID")
def uuid(view: MachineView, device: DeviceHandle) -> str:
    """``GPU-…`` or ``MIG-…``."""
    gpu = view.gpu(device)
    if not device.is_mig:
        return gpu.uuid
    _, instance, compute = view.mig_device(device)
    return mig_geometry.mig_device_uuid(gpu.uuid, instance.id, compute.id)


@answers("nvmlDeviceGetIndex")
def index(view: MachineView, device: DeviceHandle) -> int:
    """Position among the GPUs, or among the MIG devices of a GPU."""
    gpu = view.gpu(device)
    if not device.is_mig:
        return view.gpus.index(gpu)
    _, instance, compute = view.mig_device(device)
    return list(mig_geometry.mig_devices(gpu.state)).index((instance, compute))


def pci_address(bus_id: str) -> dict[str, Any]:
    """The address in nvmlPciInfo_t: eight domain digits, four in the old field; upper case."""
    domain, bus, rest = bus_id.split(":")
    number = int(domain, 16)
    return {
        "busIdLegacy": f"{number & 0xFFFF:04X}:{bus}:{rest}".upper(),
        "busId": f"{number:08X}:{bus}:{rest}".upper(),
        "domain": number,
        "bus": int(bus, 16),
        "device": int(rest.split(".")[0], 16),
    }


def pci_info(gpu: SimulatedGpu) -> dict[str, Any]:
    """The whole of nvmlPciInfo_t."""
    ids = {"pciDeviceId": gpu.model.device_id, "pciSubSystemId": gpu.model.subsystem_id}
    return pci_address(gpu.spec.bus_id) | ids


def _licensable(gpu: SimulatedGpu) -> dict[str, Any]:
    """The vGPU feature, where the machine says whether it is licensed."""
    licensed = gpu.spec.vgpu_licensed
    if licensed is None:
        return {"isGridLicenseSupported": 0}
    feature = {"featureCode": _VGPU_FEATURE, "featureState": int(licensed), "featureEnabled": 1}
    return {
        "isGridLicenseSupported": 1,
        "licensableFeaturesCount": 1,
        "gridLicensableFeatures": [feature],
    }


@answers_on_gpu("nvmlDeviceGetInforomVersion")
def inforom_version(gpu: SimulatedGpu, part: int) -> str:
    """Versions of the objects that boards with ECC have: round figures, by architecture.

    Source: nvidia-smi -q of data centre GPUs, where "Power Management Object" is N/A.
    """
    if part >= pynvml.NVML_INFOROM_COUNT:
        raise Nvml(INVALID_ARGUMENT)
    need(gpu.model.ecc and part in (pynvml.NVML_INFOROM_OEM, pynvml.NVML_INFOROM_ECC))
    return "2.1" if part == pynvml.NVML_INFOROM_OEM else f"{gpu.model.architecture - 2}.16"


def _inforom_image(gpu: SimulatedGpu) -> str:
    need(gpu.model.ecc)
    return f"G{gpu.model.device_id >> 20:03X}.0200.00.05"


@answers_on_gpu("nvmlDeviceGetPlatformInfo")
def platform_info(gpu: SimulatedGpu, version: dict[str, int]) -> dict[str, Any]:
    """Place in the rack, since Blackwell with NVLink; elsewhere there is none.

    Source: nvidia-smi -q, "Platform Info", for what there is; all of its numbers are invented.
    """
    del version  # there is one
    need(gpu.model.architecture >= pynvml.NVML_DEVICE_ARCH_BLACKWELL and gpu.model.nvlink_links)
    number = gpu.view.gpus.index(gpu)
    guid = zlib.crc32(gpu.serial.encode()).to_bytes(4, "little")
    return {
        "ibGuid": [*guid, *guid],
        "chassisSerialNumber": "1821025190042",
        "slotNumber": 24,
        "trayIndex": 14,
        "hostId": 1,
        "peerType": 1,
        "moduleId": number + 1,
    }


def _inforom_checksum(gpu: SimulatedGpu) -> int:
    """Checksum of the name: boards of a model are configured alike. Invented."""
    need(gpu.model.ecc)
    return zlib.crc32(gpu.model.name.encode())


gpu_facts(
    {
        "nvmlDeviceGetSerial": lambda gpu: gpu.serial,
        "nvmlDeviceGetBoardId": lambda gpu: zlib.crc32(gpu.serial.encode()),
        "nvmlDeviceGetPciInfo_v3": pci_info,
        "nvmlDeviceGetBrand": lambda gpu: gpu.model.brand,
        "nvmlDeviceGetArchitecture": lambda gpu: gpu.model.architecture,
        "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.model.compute_capability,
        "nvmlDeviceGetVbiosVersion": lambda gpu: gpu.model.vbios,
    },
    mig_devices=True,
)
gpu_facts(
    {
        "nvmlDeviceGetMinorNumber": lambda gpu: gpu.minor,
        "nvmlDeviceGetPersistenceMode": lambda _: 1,
        "nvmlDeviceGetInforomImageVersion": _inforom_image,
        "nvmlDeviceGetInforomConfigurationChecksum": _inforom_checksum,
        "nvmlDeviceGetComputeMode": lambda _: 0,  # NVML_COMPUTEMODE_DEFAULT: processes may share it
        "nvmlDeviceGetVirtualizationMode": lambda gpu: gpu.spec.virtualization,
        "nvmlDeviceGetGridLicensableFeatures_v4": _licensable,
    },
    mig_devices=False,
)
