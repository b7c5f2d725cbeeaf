# SPDX-License-Identifier: Apache-2.0
"""The settings of one program: declared in one class, made from layers of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from base.files import read_text
from base.settings.layers import (
    CONFIG_VARIABLE,
    Layer,
    WrittenValue,
    environment_layer,
    flag_layer,
    named_file_layer,
)
from base.settings.option import Option, declared_options

Settings = TypeVar("Settings")


class ProgramSettings(Generic[Settings]):
    """Makes a program's settings from flags, environment and file, in this order of precedence."""

    def __init__(self, declared: type[Settings]) -> None:
        """``declared`` is a dataclass, each field of which is declared by :func:`setting`.

        Its ``__post_init__`` raises BadInput where settings contradict each other.
        """
        self._declared = declared
        self.options: Sequence[Option] = declared_options(declared)
        """In the order of help texts and of the configuration page."""
        self._by_name = {option.name: option for option in self.options}

    def load(
        self,
        flags: Mapping[str, str],
        environ: Mapping[str, str],
        read_file: Callable[[Path], str] = read_text,
        *,
        other_options: Iterable[Option] = (),
    ) -> Settings:
        """The settings as they stand now; call it again with the same flags to reload.

        ``flags`` holds the command line's values by option name; ``config`` names the file.
        Variables of ``other_options``, the options of other programs, are ignored. Raises BadInput
        with one sentence that names the flag, variable, or file, line and key.
        """
        config = WrittenValue(text=flags.get("config", ""), source="--config")
        if not config.text:
            config = WrittenValue(text=environ.get(CONFIG_VARIABLE, ""), source=CONFIG_VARIABLE)
        return self.settle(
            [
                flag_layer(flags),
                environment_layer(environ, self.options, other_options=other_options),
                named_file_layer(config, self.options, read_file),
            ]
        )

    def settle(self, layers: Sequence[Layer]) -> Settings:
        """The settings from layers of text; the first layer that has a value wins.

        Values that a higher layer hides are checked too, so that a mistake does not wait
        for the day the flag above it goes. Raises BadInput naming the source.
        """
        values: dict[str, object] = {}
        for layer in reversed(layers):
            for name, written in layer.items():
                if written.text.strip():
                    option = self._by_name[name]
                    values[option.field] = written.read(option.spec.kind)
        return self._declared(**values)
