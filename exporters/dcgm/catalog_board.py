# SPDX-License-Identifier: Apache-2.0
"""Families of what a GPU is and how it is set: numbers, modes, its place in the system."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from discovery.model import GpuSnapshot, Mode, NvidiaFacts, Reason
from discovery.nvml_terms import Virtualization
from discovery.sample import Board, Platform, ReadingGroup, SpareRows
from exporters.dcgm.dcgm_family import (
    COUNT_MOST,
    MASK_MOST,
    TOTAL_MOST,
    DcgmFamily,
    DcgmReading,
    Value,
)
from exporters.dcgm.family_values import of_gpu, of_number, of_nvidia, of_part

_COMPUTE_MODES = {0: 0, 1: 1, 2: 1, 3: 2}
"""NVML_COMPUTEMODE_* to DCGM's: default, prohibited, one process alone.

Source: DCGM 4.6.0, ``DcgmCacheManager.cpp``.
"""

_number = partial(DcgmFamily, most=COUNT_MOST)
_mode = partial(DcgmFamily, most=1)
_board = partial(DcgmFamily, most=64, group=ReadingGroup.BOARD)
_spare_rows = partial(
    DcgmFamily,
    most=COUNT_MOST,
    group=ReadingGroup.SPARE_ROWS,
    gpus="Ampere and later, with row remapping",
)


def _cuda(reading: DcgmReading) -> int | None:
    """Newest CUDA of the driver, as the CUDA runtime writes it."""
    version = reading.driver.cuda_version
    return None if version is None else 1000 * version[0] + 10 * version[1]


def _compute_capability(gpu: NvidiaFacts) -> int | None:
    if gpu.compute_capability is None:
        return None
    major, minor = gpu.compute_capability
    return (major << 16) + minor


def _mig_mode(reading: DcgmReading) -> bool | None:
    """Off where the GPU has no MIG."""
    mig = reading.nvidia.mig
    if mig is None:
        gap = reading.gpu.gap("mig")
        return False if gap is not None and gap.reason is Reason.UNSUPPORTED else None
    return mig.current


def _virtual_mode(gpu: NvidiaFacts) -> int | None:
    return None if gpu.virtualization is None else tuple(Virtualization).index(gpu.virtualization)


def _ecc_mode(read: Callable[[Mode], bool]) -> Callable[[GpuSnapshot], bool | None]:
    return lambda gpu: None if gpu.ecc is None else read(gpu.ecc)


_BITS = 64
_MASK_LEAST, _MASK_MOST = -(1 << 63), (1 << 63) - 1


def _affinity(read: Callable[[Board], tuple[int, ...] | None], place: int) -> Value:
    """Word of a mask as DCGM gives it, with a sign: the highest bit makes it negative."""

    def word(board: Board) -> int | None:
        words = read(board)
        if words is None:
            return None
        return words[place] - (words[place] >> (_BITS - 1) << _BITS)

    return of_part(lambda sample: sample.board, word)


def _nvlink_peers(reading: DcgmReading) -> int | None:
    """A bit for each other GPU that can be reached over NVLink; None unless all are known."""
    peers = reading.nvlink_p2p
    if reading.gpu_count is None or len(peers) != reading.gpu_count - 1:
        return None
    return sum(1 << index for index, status in peers.items() if status == 0)


def _of_platform(read: Callable[[Platform], int | None]) -> Value:
    return of_part(lambda sample: None if (board := sample.board) is None else board.platform, read)


_AFFINITIES: tuple[tuple[int, str, str, str, Callable[[Board], tuple[int, ...] | None]], ...] = (
    (70, "CPU", "CPU", "CPUs", lambda board: board.cpu_affinity),
    (86, "MEM", "MEMORY", "NUMA nodes", lambda board: board.memory_affinity),
)
"""First field, name, the name since DCGM 4.6, in words, where it is read."""

_PLACES: tuple[tuple[int, str, str, Callable[[Platform], int | None]], ...] = (
    (573, "CHASSIS_SLOT_NUMBER", "Slot in the rack, switches counted too.",
     lambda place: place.slot),
    (574, "TRAY_INDEX", "Place among the trays of the rack that compute.",
     lambda place: place.tray),
    (575, "HOST_ID", "Place of the node in its slot.", lambda place: place.host_id),
    (576, "PEER_TYPE", "What NVLinks lead to, as the platform numbers it.",
     lambda place: place.peer_type),
    (577, "MODULE_ID", "Place of the GPU in the node.", lambda place: place.module_id),
)  # fmt: skip
"""Field, name, in words, where it is read."""

_POWER_SMOOTHING: tuple[tuple[str, str, bool], ...] = (
    ("ENABLED", "1 while power smoothing is on, else 0.", False),
    ("PRIV_LVL", "Level of rights to set power smoothing.", False),
    ("IMM_RAMP_DOWN_ENABLED", "1 where power may fall at once, else 0.", False),
    ("APPLIED_TMP_CEIL", "Ceiling of power that is applied.", True),
    ("APPLIED_TMP_FLOOR", "Floor of power that is applied.", True),
    ("MAX_PERCENT_TMP_FLOOR_SETTING", "Highest floor that can be set, in percent.", True),
    ("MIN_PERCENT_TMP_FLOOR_SETTING", "Lowest floor that can be set, in percent.", True),
    (
        "HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING",
        "Life that is left of the circuit for power smoothing, in percent.",
        True,
    ),
    ("MAX_NUM_PRESET_PROFILES", "Profiles of power smoothing that there are.", False),
    ("PROFILE_PERCENT_TMP_FLOOR", "Floor of the profile, in percent.", True),
    ("PROFILE_RAMP_UP_RATE", "How fast power may rise by the profile, in mW/s.", True),
    ("PROFILE_RAMP_DOWN_RATE", "How fast power may fall by the profile, in mW/s.", True),
    ("PROFILE_RAMP_DOWN_HYST_VAL", "How long power waits before it falls, in ms.", False),
    ("ACTIVE_PRESET_PROFILE", "Number of the profile in force.", False),
    ("ADMIN_OVERRIDE_PERCENT_TMP_FLOOR", "Floor that an admin has set, in percent.", True),
    ("ADMIN_OVERRIDE_RAMP_UP_RATE", "Rise that an admin has set, in mW/s.", True),
    ("ADMIN_OVERRIDE_RAMP_DOWN_RATE", "Fall that an admin has set, in mW/s.", True),
    ("ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL", "Wait that an admin has set, in ms.", False),
)
"""Name, in words, whether it is a double: DCGM's fields from 1425 on, NVML's from 251 on."""

_SPARE: tuple[tuple[int, str, str, Callable[[SpareRows], int | None]], ...] = (
    (385, "MAX", "all", lambda banks: banks.all_left),
    (386, "HIGH", "many", lambda banks: banks.many_left),
    (387, "PARTIAL", "some", lambda banks: banks.some_left),
    (388, "LOW", "few", lambda banks: banks.few_left),
    (389, "NONE", "none", lambda banks: banks.none_left),
)
"""Field, name, in words, where it is read."""

FAMILIES: tuple[DcgmFamily, ...] = (
    _number(
        field=4,
        name="DCGM_FI_DEV_COUNT",
        renamed="DCGM_FI_SYSTEM_GPU_QUANTITY",
        help="GPUs of the node.",
        value=lambda reading: reading.gpu_count,
    ),
    _number(
        field=5,
        name="DCGM_FI_CUDA_DRIVER_VERSION",
        help="Newest CUDA that the driver supports: 12040 is 12.4.",
        value=_cuda,
    ),
    _number(
        field=52,
        name="DCGM_FI_DEV_NVML_INDEX",
        help="Place of the GPU in the order of the PCI bus, from 0.",
        value=of_gpu(lambda gpu: gpu.index),
    ),
    _number(
        field=55,
        name="DCGM_FI_DEV_MINOR_NUMBER",
        renamed="DCGM_FI_DEV_GPU_MINOR_NUMBER",
        help="Number of the device file: 0 is /dev/nvidia0.",
        value=of_nvidia(lambda gpu: gpu.minor),
    ),
    _number(
        field=58,
        name="DCGM_FI_DEV_PCI_COMBINED_ID",
        help="PCI device id, times 65536, and vendor id.",
        value=of_gpu(lambda gpu: gpu.pci_device_id),
    ),
    _number(
        field=59,
        name="DCGM_FI_DEV_PCI_SUBSYS_ID",
        help="PCI subsystem id, times 65536, and the subsystem's vendor id.",
        value=of_gpu(lambda gpu: gpu.pci_subsystem_id),
    ),
    _number(
        field=63,
        name="DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY",
        renamed="DCGM_FI_CUDA_GPU_COMPUTE_CAPABILITY",
        help="Compute capability as DCGM writes it: 65536 times the first number plus the second.",
        value=of_nvidia(_compute_capability),
    ),
    DcgmFamily(
        field=64,
        name="DCGM_FI_DEV_P2P_NVLINK_STATUS",
        renamed="DCGM_FI_DEV_NVLINK_P2P_STATUS",
        help="Bits of the GPUs, by their numbers, whose memory this one can reach over NVLink.",
        value=_nvlink_peers,
        most=MASK_MOST,
        group=ReadingGroup.P2P,
    ),
    *(
        DcgmFamily(
            field=field + place,
            name=f"DCGM_FI_DEV_{name}_AFFINITY_{place}",
            renamed=None if name == renamed else f"DCGM_FI_DEV_{renamed}_AFFINITY_{place}",
            help=f"Bits of the {words} near the GPU, from {_BITS * place} on, with a sign.",
            value=_affinity(read, place),
            least=_MASK_LEAST,
            most=_MASK_MOST,
            exact=True,
            group=ReadingGroup.BOARD,
        )
        for field, name, renamed, words, read in _AFFINITIES
        for place in range(4)
    ),
    DcgmFamily(
        field=83,
        name="DCGM_FI_DEV_INFOROM_CONFIG_CHECK",
        renamed="DCGM_FI_DEV_INFOROM_CHECKSUM",
        help="Checksum of the InfoROM's configuration: the same on GPUs configured alike.",
        value=of_part(lambda sample: sample.board, lambda board: board.inforom_checksum),
        most=(1 << 32) - 1,
        group=ReadingGroup.BOARD,
        gpus="with an InfoROM",
    ),
    _mode(
        field=346,
        name="DCGM_FI_DEV_THRESHOLD_SRM",
        renamed="DCGM_FI_DEV_SRAM_EXCEEDED",
        help="1 where the SRAM had more uncorrectable errors than it may have, else 0.",
        value=of_part(lambda sample: sample.board, lambda board: board.sram_exceeded),
        group=ReadingGroup.BOARD,
        gpus="with ECC, where the driver reports it",
    ),
    _mode(
        field=1507,
        name="DCGM_FI_DEV_MEMORY_UNREPAIRABLE_FLAG",
        renamed="DCGM_FI_DEV_MEMORY_UNREPAIRABLE",
        help="1 where the memory has an error that cannot be repaired, else 0.",
        value=of_part(lambda sample: sample.board, lambda board: board.memory_unrepairable),
        group=ReadingGroup.BOARD,
        gpus="where the driver reports it",
    ),
    *(
        DcgmFamily(
            field=field,
            name=f"DCGM_FI_DEV_PLATFORM_{name}",
            help=words,
            value=_of_platform(read),
            most=0xFF,
            group=ReadingGroup.BOARD,
            gpus="where the platform reports it",
        )
        for field, name, words, read in _PLACES
    ),
    _board(
        field=65,
        name="DCGM_FI_DEV_COMPUTE_MODE",
        renamed="DCGM_FI_DEV_GPU_COMPUTE_MODE",
        help="Who may compute: 0 any process, 1 none, 2 one process alone.",
        value=of_part(
            lambda sample: sample.board,
            lambda board: (
                None if board.compute_mode is None else _COMPUTE_MODES[board.compute_mode]
            ),
        ),
    ),
    _mode(
        field=66,
        name="DCGM_FI_DEV_PERSISTENCE_MODE",
        renamed="DCGM_FI_DEV_GPU_PERSISTENCE_MODE",
        help="1 where the driver stays loaded without clients, else 0.",
        value=of_nvidia(lambda gpu: gpu.persistence),
    ),
    _mode(
        field=67,
        name="DCGM_FI_DEV_MIG_MODE",
        help="1 while MIG is on, else 0.",
        value=_mig_mode,
    ),
    _mode(
        field=74,
        name="DCGM_FI_DEV_CC_MODE",
        help="1 while confidential computing is on, else 0.",
        value=of_part(lambda sample: sample.board, lambda board: board.confidential),
        group=ReadingGroup.BOARD,
        gpus="Hopper and later",
    ),
    _mode(
        field=120,
        name="DCGM_FI_DEV_AUTOBOOST",
        renamed="DCGM_FI_DEV_CLOCKS_AUTOBOOST_MODE",
        help="1 where clocks rise above those of applications by themselves, else 0.",
        value=of_part(lambda sample: sample.board, lambda board: board.boosts_by_itself),
        group=ReadingGroup.BOARD,
        gpus="before Pascal",
    ),
    _board(
        field=235,
        name="DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
        help="Highest PCIe generation that GPU and system have in common.",
        value=of_part(lambda sample: sample.board, lambda board: board.pcie_generation),
    ),
    _board(
        field=236,
        name="DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
        help="Most PCIe lanes that GPU and system have in common.",
        value=of_part(lambda sample: sample.board, lambda board: board.pcie_width),
    ),
    _mode(
        field=300,
        name="DCGM_FI_DEV_ECC_CURRENT",
        renamed="DCGM_FI_DEV_ECC_MODE",
        help="1 while ECC is on, else 0.",
        value=of_gpu(_ecc_mode(lambda ecc: ecc.current)),
        gpus="with ECC",
    ),
    _mode(
        field=301,
        name="DCGM_FI_DEV_ECC_PENDING",
        help="1 where ECC is on after the next reset, else 0.",
        value=of_gpu(_ecc_mode(lambda ecc: ecc.pending)),
        gpus="with ECC",
    ),
    _number(
        field=500,
        name="DCGM_FI_DEV_VIRTUAL_MODE",
        renamed="DCGM_FI_DEV_GPU_VIRTUAL_MODE",
        help="Virtualisation: 0 none, 1 passed through, 2 vGPU, 3 host of vGPUs, 4 host of vSGA.",
        value=of_nvidia(_virtual_mode),
    ),
    *(
        DcgmFamily(
            field=1425 + offset,
            name=f"DCGM_FI_DEV_PWR_SMOOTHING_{name}",
            help=words,
            value=of_number(251 + offset),
            most=TOTAL_MOST,
            decimals=is_double,
            group=ReadingGroup.NUMBERS,
            gpus="Blackwell and later",
        )
        for offset, (name, words, is_double) in enumerate(_POWER_SMOOTHING)
    ),
    *(
        _spare_rows(
            field=field,
            name=f"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_{name}",
            renamed=f"DCGM_FI_DEV_BANK_REMAP_AVAIL_{name}",
            help=f"Banks of the memory with {words} of their spare rows left.",
            value=of_part(lambda sample: sample.spare_rows, read),
        )
        for field, name, words, read in _SPARE
    ),
)
