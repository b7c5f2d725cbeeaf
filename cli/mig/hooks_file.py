# SPDX-License-Identifier: Apache-2.0
"""Commands around a change of MIG layouts, from a hooks file of nvidia-mig-parted, format v1.

Import it where such a file is read, not before: the parser takes memory.
Source: mig-parted v0.15.0, api/hooks/v1 and cmd/nvidia-mig-parted/apply.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from base.errors import Permanent
from base.files import read_text
from base.yaml_places import Yaml11Loader, YamlValue, read_yaml

START: Final = "apply-start"
BEFORE_MODE: Final = "pre-apply-mode"
BEFORE_CONFIG: Final = "pre-apply-config"
EXIT: Final = "apply-exit"
NAMES: Final = (START, BEFORE_MODE, BEFORE_CONFIG, EXIT)


class HookFailed(Permanent):
    """A hook could not be started, or ended with another code than 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A command to run around a change, with its arguments and environment."""

    command: str
    args: tuple[str, ...] = ()
    envs: Mapping[str, str]
    """Environment of the command, without the variables that every hook gets."""
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Commands of a hooks file, by the moment at which they run."""

    file: str
    by_name: Mapping[str, tuple[Hook, ...]]

    def run(self, name: str, variables: Mapping[str, str]) -> None:
        """Run the commands of one name in their order; what they print goes to standard error.

        ``variables`` come before those of the hook. Raises HookFailed for the first that fails;
        those after it are not run.
        """
        for index, hook in enumerate(self.by_name.get(name, ())):
            title = f"{self.file}: hooks.{name}[{index}]: {hook.command}"
            program = shutil.which(hook.command)  # by our own PATH, as theirs does
            if program is None:
                raise HookFailed(f"{title}: there is no such program")
            try:
                completed = subprocess.run(  # noqa: S603  # the file is the caller's
                    [program, *hook.args],
                    env={**hook.envs, **variables},
                    cwd=hook.workdir,
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    check=False,
                )
            except OSError as error:
                raise HookFailed(f"{title}: {error.strerror}") from error
            if completed.returncode != 0:
                raise HookFailed(f"{title}: it ended with code {completed.returncode}")


def read_hooks(file: str) -> Hooks:
    """Read the hooks of a file. Raises BadInput naming file, line and key."""
    return parse_hooks(read_text(Path(file), "hooks file"), file)


def parse_hooks(text: str, file: str) -> Hooks:
    """Parse the text of a hooks file; messages call it ``file``. Raises BadInput as read_hooks.

    A hook of another name would never run, so it is refused.
    """
    top = read_yaml(text, file, loader=Yaml11Loader)
    sections = top.mapping(("version", "hooks"))
    if "version" not in sections or sections["version"].text() != "v1":
        raise top.wrong("version is missing: only the format v1 is known")
    named = sections["hooks"].mapping(NAMES) if "hooks" in sections else {}
    return Hooks(
        file=file, by_name={name: tuple(map(_hook, value.items())) for name, value in named.items()}
    )


def _hook(value: YamlValue) -> Hook:
    fields = value.mapping(("command", "args", "envs", "workdir"))
    if "command" not in fields or not fields["command"].text():
        raise value.wrong("command is missing: name a program")
    args = fields["args"].items() if "args" in fields else ()
    envs = fields["envs"].mapping(names=True) if "envs" in fields else {}
    workdir = fields.get("workdir")
    return Hook(
        command=fields["command"].text(),
        args=tuple(map(_text, args)),
        envs={name: _text(variable) for name, variable in envs.items()},
        workdir=None if workdir is None or workdir.is_null else _text(workdir),
    )


def _text(value: YamlValue) -> str:
    if not value.is_text:
        raise value.wrong("expected text: put it into quotes")
    return value.text()
