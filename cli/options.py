# SPDX-License-Identifier: Apache-2.0
"""Command-line options made from a program's settings, so that each is declared once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from agent.settings.agent_settings import AGENT_SETTINGS, AgentSettings
from api.names import NAMESPACE
from base.settings import setting_kinds as kinds
from base.settings.layers import CONFIG_VARIABLE, WrittenValue
from base.settings.option import Option
from base.settings.program_settings import ProgramSettings

READING = ("simulate", "host-root", "library", "deadline", "init-deadline")
"""Settings of every command that reads the machine."""

Load = Callable[[], AgentSettings]
"""Gives the settings as they stand now; each call reads environment and file again."""

Function = TypeVar("Function", bound=Callable[..., Any])


class _SettingOption(click.Option):
    """A setting on the command line."""

    def __init__(self, *arguments: Any, subject: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.subject = subject


class BySubject(click.Command):
    """A command whose help lists its settings under their subjects, and other options first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options, and the commands of a group behind them."""
        rows: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                subject = getattr(parameter, "subject", "Options")
                rows.setdefault(subject, []).append(row)
        for subject, listed in rows.items():
            with formatter.section(subject):
                formatter.write_dl(listed)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def settings(*names: str) -> Callable[[Function], Function]:
    """Add these settings of the agent as options, and ``--config``; the command gets ``load``."""
    return program_settings(AGENT_SETTINGS, names)


def program_settings(
    program: ProgramSettings[Any], names: Sequence[str] | None = None
) -> Callable[[Function], Function]:
    """Add a program's settings as options, all of them or those named, and ``--config``.

    The command gets ``load``, bound to the flags; environment and settings file apply to every
    command, whether or not it has the flag. The agent's variables are no mistake in any of them.
    """
    by_name = {option.name: option for option in program.options}
    chosen = [by_name[name] for name in (by_name if names is None else names)]
    agent_options = () if program is AGENT_SETTINGS else AGENT_SETTINGS.options

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(**parameters: Any) -> Any:
            names = ("config", *(option.name for option in chosen))
            written = {name: parameters.pop(_parameter(name)) for name in names}
            flags = {name: _text(value) for name, value in written.items() if value is not None}
            load = functools.partial(program.load, flags, os.environ, other_options=agent_options)
            return function(load=load, **parameters)

        decorated = _config_option(command)
        for option in reversed(chosen):
            decorated = _click_option(option)(decorated)
        return decorated  # type: ignore[return-value]  # the click function it became

    return decorate


def output(*formats: str) -> Callable[[Function], Function]:
    """Add ``-o FORMAT``; the first format is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Format; json and yaml only gain keys between versions.",
    )


def namespace(help: str) -> Callable[[Function], Function]:  # noqa: A002  # as click calls it
    """Add ``--namespace``, that of gpuscape's own objects; the command gets ``namespace``."""
    return click.option(
        "-n", "--namespace", default=NAMESPACE, show_default=True, metavar="NAME", help=help
    )


def interval(*, default: str, at_least: str) -> Callable[[Function], Function]:
    """Add ``--interval`` of a view that refreshes; the command gets ``interval``, in seconds."""
    kind = kinds.duration_kind(at_least)

    def read(ctx: click.Context, parameter: click.Parameter, text: str) -> float:
        del ctx, parameter
        return WrittenValue(text=text, source="--interval").read(kind)

    return click.option(
        "--interval",
        metavar="DURATION",
        default=default,
        show_default=True,
        callback=read,
        help=f"Between two readings of a view that refreshes; at least {at_least}.",
    )


def _parameter(name: str) -> str:
    return name.replace("-", "_")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--config",
        metavar="FILE",
        help=f"Settings file: YAML with these options as keys.  [env var: {CONFIG_VARIABLE}]",
    )(function)


def _click_option(option: Option) -> Callable[[Function], Function]:
    """The option as text, which its kind checks later, together with the other layers."""
    notes = f"env var: {', '.join(option.variables)}"
    if option.default_text:
        notes += f"; default: {option.default_text}"
    words = f"{option.spec.help}  [{notes}]"
    if option.is_flag:
        spelling = f"--{option.name}/--no-{option.name}"
        return click.option(
            spelling,
            cls=_SettingOption,
            subject=option.subject,
            is_flag=True,
            default=None,
            help=words,
        )
    return click.option(
        f"--{option.name}",
        cls=_SettingOption,
        subject=option.subject,
        metavar=option.spec.kind.metavar,
        help=words,
        shell_complete=_complete_machines if option.name == "simulate" else None,
    )


def _complete_machines(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Machines that start like this, then files as the shell knows them."""
    from simulator.description.machine_catalog import (
        machine_names,  # only completion needs it here
    )

    del ctx, parameter
    names = [CompletionItem(name) for name in machine_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]
