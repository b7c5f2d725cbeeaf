# SPDX-License-Identifier: Apache-2.0
"""``gpuscape devices`` as a process, with a played kubelet."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from api.device_exchange import FILE_NAME, written
from tests.devices.exchanges import BOOT, exchange, gpu, uuid
from tests.kubelet.played_registration import PlayedKubelet


def test_it_registers_gpus_until_a_signal_ends_it_and_leaves_no_socket(short_path: Path) -> None:
    folders = {name: short_path / name for name in ("plugins", "exchange")}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    boot = short_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(f"{BOOT}\n")
    (folders["exchange"] / FILE_NAME).write_bytes(written(exchange(gpu(0), gpu(1))))

    async def play() -> int:
        kubelet = PlayedKubelet(folders["plugins"])
        await kubelet.start()
        program = subprocess.Popen(
            [
                *(sys.executable, "-m", "gpuscape", "devices", "--host-root", short_path),
                *("--plugin-folder", folders["plugins"], "--exchange-folder", folders["exchange"]),
            ]
        )
        try:
            while kubelet.current("nvidia.com/gpu") != {uuid(0): True, uuid(1): True}:
                assert program.poll() is None
                await asyncio.sleep(0.05)
            assert list(folders["plugins"].glob("gpuscape-*"))
            program.send_signal(signal.SIGTERM)
            while program.poll() is None:
                await asyncio.sleep(0.05)
        finally:
            program.kill()
            program.wait()
            await kubelet.stop()
        return program.returncode

    assert asyncio.run(play()) == 0
    assert not list(folders["plugins"].glob("gpuscape-*"))
