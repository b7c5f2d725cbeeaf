# SPDX-License-Identifier: Apache-2.0
"""Output of ``gpuscape check-config``: tables, or one document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from cli import terminal
from cli.config_check.checked_config import (
    CheckedConfig,
    CheckedLayout,
    ConfigFault,
    CountersMeaning,
    Meaning,
    PluginMeaning,
    RuleMeaning,
    UncheckedText,
    WebMeaning,
)
from cli.config_check.config_kinds import TITLES
from cli.terminal import NONE, TextTable


def show_checked_configs(
    checked: Sequence[CheckedConfig], unchecked: Sequence[UncheckedText], output: str
) -> None:
    """Print all of it; as ``table`` file by file, else as one document."""
    if output != "table":
        terminal.print_data({"configs": tuple(checked), "unchecked": tuple(unchecked)}, output)
        return
    for index, config in enumerate(checked):
        terminal.note(*([""] if index else []), *_head(config))
        for table in _tables(config.meaning):
            terminal.show_table(table)
    for text in unchecked:
        place = f"{text.file}: {text.entry}" if text.entry else text.file
        terminal.note(f"not checked: {place}: {text.reason}", err=True)


def _head(checked: CheckedConfig) -> Iterator[str]:
    place = f"{checked.file}: {checked.entry}" if checked.entry else checked.file
    verdict = "right" if checked.is_good else "refused"
    yield f"{place}: {TITLES[checked.kind]}: {verdict}"
    yield from (_line(checked, fault, "") for fault in checked.refused)
    yield from (_line(checked, fault, "note: ") for fault in checked.notes)


def _line(checked: CheckedConfig, fault: ConfigFault, before: str) -> str:
    place = checked.file if fault.line is None else f"{checked.file}:{fault.line}"
    return f"{place}: {before}{fault.reason}"


def _tables(meaning: Meaning | None) -> Iterator[TextTable]:
    match meaning:
        case None:
            return
        case PluginMeaning():
            yield from _plugin(meaning)
        case CountersMeaning():
            yield TextTable(
                header=("SERVED", "TYPE"),
                rows=(*meaning.families, *((label, "label") for label in meaning.labels)),
            )
            if meaning.settings:
                yield TextTable(header=("FLAG", "VALUE"), rows=tuple(meaning.settings.items()))
        case WebMeaning():
            yield TextTable(
                header=("SETTING", "VALUE"),
                rows=(
                    ("TLS", meaning.tls),
                    ("client certificate", meaning.client_certificate),
                    ("users", ", ".join(meaning.users) or NONE),
                    ("headers", ", ".join(meaning.headers) or NONE),
                    ("requests", meaning.requests),
                ),
            )
        case tuple():
            yield from _listed(meaning)
        case _:
            assert_never(meaning)


def _plugin(meaning: PluginMeaning) -> Iterator[TextTable]:
    is_read = meaning.labels is not None
    yield TextTable(
        header=("RESOURCE", "SHARES", "SHARING", "REQUESTS", *(["OFFERED"] if is_read else [])),
        rows=tuple(
            (
                offer.resource,
                f"{offer.replicas} of each device",
                offer.sharing,
                "one share each" if offer.one_share_a_request else "any number",
                *([str(offer.amount)] if is_read else []),
            )
            for offer in meaning.offers
        ),
    )
    if meaning.labels:
        yield TextTable(header=("LABEL", "VALUE"), rows=tuple(meaning.labels.items()))


def _listed(meaning: tuple[CheckedLayout, ...] | tuple[RuleMeaning, ...]) -> Iterator[TextTable]:
    layouts = [layout for layout in meaning if isinstance(layout, CheckedLayout)]
    rules = [rule for rule in meaning if isinstance(rule, RuleMeaning)]
    if layouts:
        yield TextTable(
            header=("CONFIGURATION", "LAYOUT", "FITS"),
            rows=tuple(
                (layout.name, " | ".join(layout.layouts), "; ".join(layout.fits) or NONE)
                for layout in layouts
            ),
        )
    if rules:
        yield TextTable(
            header=("LABEL", "VALUES"),
            rows=tuple((rule.key, "; ".join(rule.values)) for rule in rules),
        )
