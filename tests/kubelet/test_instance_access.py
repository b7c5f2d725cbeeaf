# SPDX-License-Identifier: Apache-2.0
"""Device nodes of new instances are made, whatever else is in their folder; stale files are named.

Real device nodes, as root, in a temporary folder with the host tree of a simulated machine.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kubelet.device_access.device_nodes import make_nodes, read_minors
from kubelet.device_access.instance_access import open_access, stale_specs
from simulator.simulation import Simulation

CAPS = "dev/nvidia-caps"
MACHINE = "dgx-a100-mig-single"
UUID = "MIG-00000000-0000-0000-0000-00000000000a"


def may_make_nodes() -> bool:
    """Containers mostly may not."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(f"{folder}/node", stat.S_IFCHR, os.makedev(1, 3))
        except OSError:
            return False
    return True


real = pytest.mark.skipif(not may_make_nodes(), reason="that takes root and CAP_MKNOD")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host tree of a machine with instances, for all tests."""
    return Simulation.create(MACHINE, tmp_path_factory.mktemp("machine")).host_root


@pytest.fixture
def root(machine: Path, tmp_path: Path) -> Path:
    """What of that host the driver publishes; no instance has a node."""
    host = tmp_path / "host"
    shutil.copytree(machine / "proc", host / "proc")
    (host / CAPS).mkdir(parents=True)
    return host


def nodes(root: Path) -> dict[str, tuple[int, int, int]]:
    """Name to major and minor number and mode; all are character devices."""
    found = {}
    for one in (root / CAPS).iterdir():
        facts = one.lstat()
        assert stat.S_ISCHR(facts.st_mode), one
        numbers = (os.major(facts.st_rdev), os.minor(facts.st_rdev))
        found[one.name] = (*numbers, stat.S_IMODE(facts.st_mode))
    return found


def access_files(root: Path) -> list[Path]:
    """One for each instance."""
    return sorted((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/**/access"))


@real
def test_every_instance_gets_its_node(root: Path) -> None:
    """Two for each: of the GPU instance, and of the compute instance in it."""
    result = make_nodes(root)

    numbers = sorted(
        int(one.read_text("utf-8").partition(": ")[2].partition("\n")[0])
        for one in access_files(root)
    )
    assert nodes(root) == {f"nvidia-cap{each}": (237, each, 0o400) for each in numbers}
    assert (len(result.created), result.problems) == (len(numbers), ())
    assert len(numbers) > 20
    assert stat.S_IMODE((root / CAPS).stat().st_mode) == 0o755


@real
def test_a_second_time_nothing_is_made(root: Path) -> None:
    """Nor is a mode set back that an admin has changed."""
    make_nodes(root)
    one = next((root / CAPS).iterdir())
    one.chmod(0o444)
    before = one.stat()

    assert make_nodes(root).created == ()
    assert one.stat() == before


@real
def test_the_folder_is_made_where_it_is_missing(root: Path) -> None:
    """As after a boot on which nobody has asked for a capability."""
    (root / CAPS).rmdir()

    make_nodes(root)

    assert nodes(root)


@real
def test_a_node_of_a_driver_that_is_gone_is_replaced_and_no_other(root: Path) -> None:
    """The major number is another after a reload. What is no instance's stays, right or not."""
    wrong = root / CAPS / access_node(root)
    os.mknod(wrong, stat.S_IFCHR | 0o600, os.makedev(99, 7))
    os.mknod(root / CAPS / "nvidia-cap1", stat.S_IFCHR | 0o600, os.makedev(99, 1))
    os.mknod(root / CAPS / "nvidia-cap9999", stat.S_IFCHR | 0o600, os.makedev(99, 9999 % 256))

    make_nodes(root)

    found = nodes(root)
    assert found[wrong.name][0] == 237
    assert found["nvidia-cap1"] == (99, 1, 0o600)
    assert found["nvidia-cap9999"][0] == 99


def make_odd(place: Path, what: str, *, text: str, target: Path) -> None:
    """Something that is no device node, and no file that one should read."""
    match what:
        case "link":
            place.symlink_to(target)
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case _:
            place.write_text(text, "utf-8")


def access_node(root: Path) -> str:
    """The node of the first instance."""
    text = access_files(root)[0].read_text("utf-8")
    return f"nvidia-cap{text.partition(': ')[2].partition(chr(10))[0]}"


@real
def test_a_link_to_the_right_node_is_no_node(root: Path, tmp_path: Path) -> None:
    """Whoever made it can lead it elsewhere later."""
    name = access_node(root)
    outside = tmp_path / "outside"
    os.mknod(outside, stat.S_IFCHR | 0o400, os.makedev(237, int(name.removeprefix("nvidia-cap"))))
    (root / CAPS / name).symlink_to(outside)

    [problem] = make_nodes(root).problems
    assert problem.startswith(f"/{CAPS}/{name} of gpu")


@real
@pytest.mark.parametrize("what", ["file", "link", "folder", "pipe"])
def test_what_is_no_device_node_is_left_and_named(root: Path, what: str, tmp_path: Path) -> None:
    """All other nodes are made; a link is not followed."""
    place = root / CAPS / access_node(root)
    outside = tmp_path / "outside"
    outside.write_text("mine", "utf-8")
    make_odd(place, what, text="mine", target=outside)
    before = place.lstat()

    result = make_nodes(root)

    assert place.lstat() == before
    assert outside.read_text("utf-8") == "mine"
    assert len(result.created) == len(access_files(root)) - 1
    [problem] = result.problems
    assert problem.startswith(f"/{CAPS}/{place.name} of gpu")
    assert problem.endswith("another file is in its place; remove it")


def test_a_link_in_the_place_of_the_folder_is_not_followed(root: Path, tmp_path: Path) -> None:
    """Nothing is made where it leads."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / CAPS).rmdir()
    (root / CAPS).symlink_to(elsewhere)

    result = make_nodes(root, stand_ins=True)

    assert list(elsewhere.iterdir()) == []
    assert result.problems == (
        "/dev/nvidia-caps: a link or another file is in its place; remove it",
    )


@real
def test_what_a_process_that_died_left_is_no_obstacle(root: Path) -> None:
    """And is gone afterwards."""
    (root / CAPS / f".{access_node(root)}.new").touch()

    assert make_nodes(root).problems == ()
    assert all(name.startswith("nvidia-cap") for name in nodes(root))


def test_empty_files_stand_for_nodes_of_a_simulated_machine(root: Path) -> None:
    """Without root's rights too."""
    first = make_nodes(root, stand_ins=True)
    second = make_nodes(root, stand_ins=True)

    assert len(first.created) == len(list((root / CAPS).iterdir())) == len(access_files(root))
    assert (first.problems, second.created, second.problems) == ((), (), ())


def test_without_the_right_each_node_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that may not make device nodes says so."""

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refuse)

    result = make_nodes(root)

    assert result.created == ()
    assert len(result.problems) == len(access_files(root))
    assert all(one.endswith("(CAP_MKNOD)") for one in result.problems)


def test_a_machine_without_mig_wants_nothing(tmp_path: Path) -> None:
    """No folder either."""
    host = Simulation.create("l40s", tmp_path).host_root

    assert (make_nodes(host).created, make_nodes(host).problems) == ((), ())
    assert not (host / CAPS).exists()


# specifications for container runtimes


def spec(*devices: dict[str, Any], kind: str = "nvidia.com/gpu", **more: Any) -> str:
    """A CDI file."""
    content = {"cdiVersion": "0.5.0", "kind": kind, "devices": list(devices)}
    return json.dumps(content | more)


def device(name: str, *minors: int) -> dict[str, Any]:
    """One entry, with these capability nodes."""
    paths = [{"path": f"/dev/nvidia-caps/nvidia-cap{each}"} for each in minors]
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, *paths]}}


def put(root: Path, text: str, name: str = "var/run/cdi/nvidia.yaml") -> None:
    """A file on the host."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def used_and_free(root: Path) -> tuple[int, int]:
    """A number that an instance has, and one that none has now."""
    minors = read_minors(root)
    return min(minors.used), min(minors.possible - minors.used)


def test_a_specification_that_is_true_is_not_named(root: Path) -> None:
    """Control nodes are no instances, and GPUs no MIG devices."""
    used, _ = used_and_free(root)
    put(root, spec(device(UUID, used, 1, 2), device("0"), device("GPU-1"), device("0:0", used)))

    assert list(stale_specs(root, {UUID})) == []


@pytest.mark.parametrize("folder", ["etc/cdi", "var/run/cdi", "run/cdi"])
@pytest.mark.parametrize("ending", ["json", "yaml", "yml"])
def test_a_device_that_is_gone_is_named_with_the_fix(root: Path, folder: str, ending: str) -> None:
    """By the specification's kind: who wrote it writes it anew."""
    put(root, spec(device(UUID), device("0")), f"{folder}/nvidia.{ending}")

    assert list(stale_specs(root, set())) == [
        f"/{folder}/nvidia.{ending}: nvidia.com/gpu has the device {UUID}, which is not there any"
        " more; run nvidia-ctk cdi generate, as the service nvidia-cdi-refresh does"
    ]


def test_a_node_of_an_instance_that_is_gone_is_named(root: Path) -> None:
    """Entries by index have no UUID; the node still says it."""
    _, free = used_and_free(root)
    put(root, spec(device("0:0", free)))

    [problem] = stale_specs(root, None)
    assert f"nvidia.com/gpu has the node /dev/nvidia-caps/nvidia-cap{free}, which is" in problem


def test_a_node_that_all_devices_get_is_looked_at_too(root: Path) -> None:
    """And the path on the host counts, where it is another."""
    used, free = used_and_free(root)
    edits = {
        "deviceNodes": [
            {
                "path": f"/dev/nvidia-caps/nvidia-cap{used}",
                "hostPath": f"/dev/nvidia-caps/nvidia-cap{free}",
            }
        ]
    }
    put(root, spec(containerEdits=edits))

    [problem] = stale_specs(root, None)
    assert f"nvidia-cap{free}," in problem


def test_many_that_are_gone_are_counted(root: Path) -> None:
    """And the device plugin's own file is written anew by the plugin."""
    _, free = used_and_free(root)
    gone = [device(UUID.replace("a", each), free) for each in "abcd"]
    put(root, spec(*gone, kind="k8s.device-plugin.nvidia.com/gpu"), "run/cdi/k8s.json")

    [problem] = stale_specs(root, set())
    assert "and 2 more, which are not there any more; restart the device plugin's pod" in problem


@pytest.mark.parametrize(
    "text",
    [
        spec(device(UUID), kind="vendor.com/gpu"),
        spec(device(UUID), kind="notnvidia.com/gpu"),
        '{"kind": "nvidia.com/gpu", "devices": {"name": 7}}',
        '{"kind": "nvidia.com/gpu", "devices": [7, null, {"name": 7, "containerEdits": []}]}',
        '{"kind": 7}',
        "[]",
        "",
    ],
)
def test_what_is_another_s_or_no_specification_is_passed_over(root: Path, text: str) -> None:
    """The runtime itself refuses it."""
    put(root, text)

    assert list(stale_specs(root, set())) == []


@pytest.mark.parametrize(
    ("name", "problems"), [("etc/cdi/nvidia.yaml", 1), ("etc/cdi/other.yaml", 0)]
)
@pytest.mark.parametrize("what", ["garbage", "bomb", "pipe", "link"])
def test_a_file_that_cannot_be_read_is_named_where_it_is_nvidia_s(
    root: Path, name: str, problems: int, what: str
) -> None:
    """Nothing waits for a pipe, and no link is followed."""
    put(root, "{")
    (root / "var/run/cdi/nvidia.yaml").unlink()
    place = root / name
    place.parent.mkdir(parents=True)
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 10)}]\n"
        for old, new in zip("abcdef", "bcdefg", strict=True)
    )
    text = bomb if what == "bomb" else "{"
    make_odd(place, what, text=text, target=Path("/etc/passwd"))

    found = list(stale_specs(root, set()))

    assert [one.partition(":")[0] for one in found] == [f"/{name}"] * problems


def test_the_folder_behind_a_link_is_not_looked_at_twice(root: Path) -> None:
    """/var/run is a link to /run, which from inside a container leads out of the host's tree."""
    (root / "var").mkdir(exist_ok=True)
    (root / "var/run").symlink_to("../run")
    put(root, spec(device(UUID)), "run/cdi/nvidia.yaml")

    assert len(list(stale_specs(root, set()))) == 1


def test_all_of_it_is_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was made once, each problem by itself."""
    put(root, spec(device(UUID)))
    (root / CAPS / access_node(root)).mkdir()

    with caplog.at_level("INFO"):
        result = open_access(root, {}, stand_ins=True)

    assert len(result.created) == len(access_files(root)) - 1
    assert len(result.problems) == 2
    assert [one.getMessage() for one in caplog.records] == [
        "MIG device nodes made",
        "MIG device node missing",
        "CDI specification stale",
    ]
