# SPDX-License-Identifier: Apache-2.0
"""Hooks of nvidia-mig-parted run around ``gpuscape mig apply``."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from base.errors import BadInput
from cli.failures import REFUSED
from cli.mig.hooks_file import NAMES, Hook, HookFailed, parse_hooks
from tests.actuator.simulated_node import FIVE, node
from tests.cli.mig.test_mig_apply import WANTED, run

TEXT = """version: v1
hooks:
  apply-start:
  - workdir: "/"
    command: "sh"
    args: ["-c", "true"]
    envs: {A: "1", B: "yes"}
  apply-exit:
  - command: "true"
"""


def written(to: Path, **last: str) -> str:
    """A hook under every name: a line with the name, then ``last`` where there is one."""
    hooks = {
        name: [
            {
                "command": "sh",
                "args": [
                    "-c",
                    f'echo {name} "$OWN" "$MIG_PARTED_HOOKS_FILE" "$HOME" >>{to}/said;'
                    f" {last.get(name.replace('-', '_'), 'true')}",
                ],
                "envs": {"OWN": "own", "MIG_PARTED_HOOKS_FILE": "no"},
            }
        ]
        for name in NAMES
    }
    file = to / "hooks.yaml"
    file.write_text(yaml.safe_dump({"version": "v1", "hooks": hooks}))
    return str(file)


def test_a_file_is_read_as_upstream_reads_it() -> None:
    start = Hook(command="sh", args=("-c", "true"), envs={"A": "1", "B": "yes"}, workdir="/")

    assert parse_hooks(TEXT, "f").by_name == {
        "apply-start": (start,),
        "apply-exit": (Hook(command="true", envs={}),),
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version: v1\n", "", "f:1: version is missing"),
        ("v1", "v2", "only the format v1 is known"),
        ("apply-exit", "apply-end", "f:8: 'hooks.apply-end' is not a key of this file"),
        ('command: "sh"', "args: []", "f:6"),
        ('command: "true"', "args: []", "command is missing: name a program"),
        ('"1"', "1", "f:7: hooks.apply-start.envs.A: expected text: put it into quotes"),
        ('["-c", "true"]', '"-c"', "f:6: hooks.apply-start.args: expected a list"),
    ],
)
def test_a_mistake_is_refused_with_its_line(old: str, new: str, words: str) -> None:
    """What upstream passes over as well: a hook that never runs."""
    with pytest.raises(BadInput) as refused:
        parse_hooks(TEXT.replace(old, new, 1), "f")
    assert words in str(refused.value)


def test_the_first_that_fails_ends_the_row(tmp_path: Path) -> None:
    text = "version: v1\nhooks:\n  apply-start:\n"
    for command in (f"[-c, touch {tmp_path}/a]", "[-c, exit 3]", f"[-c, touch {tmp_path}/b]"):
        text += f"  - {{command: sh, args: {command}}}\n"
    hooks = parse_hooks(text, "f")

    hooks.run("apply-exit", {})
    with pytest.raises(HookFailed, match=r"f: hooks.apply-start\[1\]: sh: it ended with code 3"):
        hooks.run("apply-start", {})
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    missing = parse_hooks("version: v1\nhooks: {apply-exit: [{command: no-such-program}]}", "f")
    with pytest.raises(HookFailed, match="no-such-program: there is no such program"):
        missing.run("apply-exit", {})


def test_hooks_run_around_a_change_where_it_has_their_steps(tmp_path: Path) -> None:
    """Instances alone: no hook of the mode. Ours come with their own environment, and no other."""
    on = node(tmp_path, *FIVE)
    file = written(tmp_path)

    result = run(on, "apply", WANTED, "--yes", "-k", file)

    assert result.exit_code == 0
    assert (tmp_path / "said").read_text().splitlines() == [
        f"{name} own {file} " for name in ("apply-start", "pre-apply-config", "apply-exit")
    ]


def test_a_hook_that_fails_before_the_change_leaves_all_as_it_was(tmp_path: Path) -> None:
    on = node(tmp_path, *FIVE)
    before = on.found()
    file = written(tmp_path, pre_apply_config="false")

    result = run(on, "apply", WANTED, "--yes", "-k", file)

    assert result.exit_code == REFUSED
    assert f"nothing was changed: {file}: hooks.pre-apply-config[0]: sh" in result.stderr
    said = [line.split()[0] for line in (tmp_path / "said").read_text().splitlines()]
    assert said == ["apply-start", "pre-apply-config", "apply-exit"]
    assert on.found() == before


def test_what_is_in_use_after_the_hooks_is_in_the_way(tmp_path: Path) -> None:
    """Before them it is not: they may end it."""
    on = node(tmp_path, *FIVE)
    on.simulation.add_process("0000:10:00.0", 71, gpu_instance_id=4, compute_instance_id=0)
    before = on.found()

    result = run(on, "apply", WANTED, "--yes", "-k", written(tmp_path))

    assert result.exit_code == REFUSED
    assert "in the way: process 71" in result.stdout
    assert "apply-exit" in (tmp_path / "said").read_text()
    assert on.found() == before
