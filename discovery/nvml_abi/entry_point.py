# SPDX-License-Identifier: Apache-2.0
"""Entry points of NVML, each a name and the kinds of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import pynvml

from discovery.nvml_abi.argument_kinds import (
    SUCCESS,
    ArgumentKind,
    Arguments,
    In,
    Out,
)
from discovery.nvml_abi.c_values import HANDLES, Garbage, HandleBook, Value


@dataclass(frozen=True)
class EntryPoint:
    """A C entry point; all but nvmlErrorString return an nvmlReturn_t."""

    name: str
    kinds: tuple[ArgumentKind, ...] = ()
    text: bool = False
    """It returns a text instead of a code."""
    waits: bool = False
    """It waits for something to happen: its answers are no facts and are not recorded."""

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the caller's inputs, in order."""
        return tuple(kind.name for kind in self.kinds if kind.takes)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the results, in order."""
        return tuple(kind.name for kind in self.kinds if kind.gives)

    @cached_property
    def looks_up(self) -> bool:
        """It gives a device's handle and takes none: only its answer says which GPU is meant."""
        kinds = [kind.ctype for kind in self.kinds if isinstance(kind, In)]
        gives = any(isinstance(k, Out) and k.ctype is pynvml.c_nvmlDevice_t for k in self.kinds)
        return gives and not HANDLES.intersection(kinds)

    def decode(self, args: Arguments, book: HandleBook) -> tuple[Value, ...]:
        """Inputs of the caller, in order. Raises Nvml for what NVML refuses."""
        return tuple(kind.decode(mine, book) for kind, mine in self._split(args) if kind.takes)

    def write(self, args: Arguments, values: Sequence[Value], book: HandleBook) -> int:
        """Give the caller the answer, in order of outputs; the return code that follows."""
        givers = [(kind, mine) for kind, mine in self._split(args) if kind.gives]
        codes = [kind.write(mine, v, book) for (kind, mine), v in zip(givers, values, strict=True)]
        return next((code for code in codes if code != SUCCESS), SUCCESS)

    def read(self, args: Arguments, book: HandleBook) -> tuple[Value, ...]:
        """Results that the caller got, in order."""
        return tuple(kind.read(mine, book) for kind, mine in self._split(args) if kind.gives)

    def restore(self, args: Arguments, given: Sequence[Value]) -> None:
        """Put back the versions of structs, which some drivers overwrite; ``given``: as decoded."""
        takers = [(kind, mine) for kind, mine in self._split(args) if kind.takes]
        for (kind, mine), value in zip(takers, given, strict=True):
            kind.restore(mine, value)

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Make the results senseless."""
        for kind, mine in self._split(args):
            if kind.gives:
                kind.spoil(mine, garbage)

    def _split(self, args: Arguments) -> list[tuple[ArgumentKind, Arguments]]:
        """The arguments of each kind. C checks no number of them: one that misses is NULL here.

        pynvml asks nvmlDeviceGetRetiredPages_v2 for its count with one too few.
        """
        missing = self._ends[-1] - len(args)
        if missing > 0:
            args = (*args, *[None] * missing)
        parts = zip(self.kinds, self._ends, self._ends[1:], strict=False)
        return [(kind, args[start:end]) for kind, start, end in parts]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """Index at which the arguments of each kind end, from 0."""
        return tuple(accumulate((len(kind.parameters) for kind in self.kinds), initial=0))
