# SPDX-License-Identifier: Apache-2.0
"""Checks of configurations, kind by kind, each with the reader that the agent uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from agent.metrics.followed_counters import parsed_counters
from base.errors import BadInput
from cli.config_check.checked_config import (
    CheckedConfig,
    CheckedLayout,
    ConfigFault,
    CountersMeaning,
    Meaning,
    OfferedResource,
    PluginMeaning,
    RuleMeaning,
    WebMeaning,
)
from cli.config_check.config_kinds import ConfigKind
from cli.config_check.config_texts import ConfigText
from exporters.dcgm.peer.peer_config import is_configuration
from labelers import label_rules_file, plugin_config
from labelers.groups.sharing import SharingStrategy
from labelers.label_rules import RuleEntry
from labelers.label_settings import PluginConfig
from mig.configs.known_gpus import known_profiles
from mig.configs.known_mig_models import FAMILIES, MigFamily
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_configs import MigConfig, MigConfigSpec
from mig.placement import Grid

MachineLabels = Callable[[PluginConfig], Mapping[str, str]]
"""Labels of a machine under a device plugin's configuration."""

_GPU: Final = "nvidia.com/gpu"
_COUNT, _REPLICAS = ".count", ".replicas"


def check_config(
    text: ConfigText, kind: ConfigKind, machine: MachineLabels | None
) -> CheckedConfig:
    """Check a configuration; ``machine`` is None where no machine is read.

    Raises what reading the machine raises.
    """
    try:
        meaning, refused, notes = _READERS[kind](text, machine)
    except BadInput as error:
        meaning, refused, notes = None, (_fault(str(error), text),), ()
    return CheckedConfig(
        file=text.file,
        entry=text.entry,
        kind=kind,
        refused=refused,
        notes=notes,
        meaning=meaning,
    )


_Faults = tuple[ConfigFault, ...]
_Read = tuple[Meaning, _Faults, _Faults]
"""Meaning of a file, the faults for which it is refused, and notes."""


def _fault(message: str, text: ConfigText) -> ConfigFault:
    """A message that begins with file and line, with the file, or with neither."""
    rest = message.removeprefix(text.file)
    match = re.match(r":(\d+)(?:: )?(.*)", rest, re.DOTALL) if rest != message else None
    if match is None:
        return ConfigFault(line=text.line, reason=rest.removeprefix(": "))
    return _fault_at(int(match[1]), match[2], text)


def _fault_at(line: int, reason: str, text: ConfigText) -> ConfigFault:
    """A reason at a line of the text."""
    if text.line is None:
        return ConfigFault(line=line, reason=reason)
    return ConfigFault(line=text.line, reason=f"line {line} of this text: {reason}")


# device plugin


def _plugin(text: ConfigText, machine: MachineLabels | None) -> _Read:
    config = plugin_config.parse_plugin_config(text.text, text.file)
    labels = None if machine is None else machine(config)
    before = {} if machine is None else machine(PluginConfig())
    return (
        PluginMeaning(
            offers=tuple(_offers(config, labels)),
            labels=None
            if labels is None
            else {key: value for key, value in labels.items() if before.get(key) != value},
            mig_strategy=config.mig_strategy,
        ),
        (),
        tuple(_fault(note, text) for note in config.ignored),
    )


def _offers(config: PluginConfig, labels: Mapping[str, str] | None) -> Iterator[OfferedResource]:
    """Resources of the machine, else those that the file names; GPUs in any case."""
    shared = {offer.resource: offer for offer in reversed(config.offers)}
    names = dict.fromkeys(offer.resource for offer in config.offers)
    if labels is not None:
        names = dict.fromkeys(key.removesuffix(_COUNT) for key in labels if _is_count(key, labels))
    elif _GPU not in names:
        names = {_GPU: None, **names}
    for name in names:
        offer = shared.get(name)
        devices = None if labels is None else int(labels[name + _COUNT])
        replicas = 1 if offer is None else offer.replicas
        yield OfferedResource(
            resource=name if offer is None else offer.offered_as,
            replicas=replicas,
            sharing=SharingStrategy.NONE if offer is None else offer.strategy,
            one_share_a_request=offer is not None and offer.one_share_a_request,
            amount=None if devices is None else devices * replicas,
        )


def _is_count(key: str, labels: Mapping[str, str]) -> bool:
    """Whether a label counts a resource's devices."""
    replicas = labels.get(key.removesuffix(_COUNT) + _REPLICAS)
    return key.endswith(_COUNT) and replicas not in (None, "0")


# MIG


def _mig(text: ConfigText, machine: MachineLabels | None) -> _Read:
    del machine
    configs = parse_mig_configs(text.text, text.file)
    meanings = tuple(map(_layouts, configs.configs))
    return meanings, tuple(_fit_nowhere(configs.configs, text)), ()


def _layouts(config: MigConfig) -> CheckedLayout:
    reasons = {family.title: _misfit(config, family) for family in FAMILIES}
    return CheckedLayout(
        name=config.name,
        layouts=tuple(dict.fromkeys(str(spec.layout) for spec in config.specs)),
        fits=tuple(title for title, reason in reasons.items() if reason == ""),
        misfits={title: reason for title, reason in reasons.items() if reason},
    )


def _misfit(config: MigConfig, family: MigFamily) -> str | None:
    """Why the configuration does not fit a model; empty where it does, None where it is of others.

    Places and counts are those of the table of known models, without engines.
    """
    specs = [spec for spec in config.specs if _concerns(spec, family)]
    return (
        next((reason for spec in specs if (reason := _spec_misfit(spec, family))), "")
        if specs
        else None
    )


def _concerns(spec: MigConfigSpec, family: MigFamily) -> bool:
    return not spec.filters or any(
        device_filter.device in family.devices for device_filter in spec.filters
    )


def _spec_misfit(spec: MigConfigSpec, family: MigFamily) -> str:
    misfit = Grid(known_profiles(family.devices[0])).misfit(spec.layout.instances)
    return "" if misfit is None else misfit.detail


def _fit_nowhere(configs: tuple[MigConfig, ...], text: ConfigText) -> Iterator[ConfigFault]:
    """Entries whose layout fits no model that they are for: a change to it is always refused."""
    for config in configs:
        for spec in config.specs:
            families = [family for family in FAMILIES if _concerns(spec, family)]
            reasons = dict.fromkeys(_spec_misfit(spec, family) for family in families)
            if families and "" not in reasons:
                why = next(iter(reasons)) if len(reasons) == 1 else "see `gpuscape mig configs`"
                yield _fault(f"{spec.places.layout}: it fits no known GPU model: {why}", text)


# counters


def _counters(text: ConfigText, machine: MachineLabels | None) -> _Read:
    del machine
    content = text.text.encode("utf-8", "surrogateescape")
    counters = parsed_counters(content, text.file)
    settings, notes = {}, []
    if is_configuration(content):
        from exporters.dcgm.peer.peer_config_reader import read_configuration

        config = read_configuration(text.text, text.file)
        settings = {flag.flag: flag.text for flag in config.flags}
        notes = [_fault(note, text) for note in config.notes]
    faults = [
        (skipped.ends_exporter, _fault_at(skipped.line, skipped.reason, text))
        for skipped in counters.skipped
    ]
    return (
        CountersMeaning(
            families=tuple((family.name, str(family.kind)) for family in counters.families),
            labels=tuple(row.name for row in counters.labels),
            settings=settings,
        ),
        tuple(fault for ends, fault in faults if ends),
        (*notes, *(fault for ends, fault in faults if not ends)),
    )


# rules for labels


def _rules(text: ConfigText, machine: MachineLabels | None) -> _Read:
    del machine
    rules = label_rules_file.parse_label_rules(text.text, text.file)
    return (
        tuple(RuleMeaning(key=rule.key, values=tuple(map(_value, rule.entries))) for rule in rules),
        (),
        (),
    )


def _value(entry: RuleEntry) -> str:
    match = " and ".join(f"{field} is {pattern}" for field, pattern in entry.match)
    return f"{entry.value} where {match}" if match else entry.value


# web config


def _web(text: ConfigText, machine: MachineLabels | None) -> _Read:
    del machine
    from web.tls import context_of, read_material
    from web.web_config import read_web_config

    config = read_web_config(text.text, text.file)
    notes = [_fault(note, text) for note in config.notes]
    refused: tuple[ConfigFault, ...] = ()
    tls = config.tls
    if tls is not None and text.entry:
        notes.append(_fault("certificates and keys are checked where the file is mounted", text))
    elif tls is not None:
        try:
            context_of(tls, read_material(tls))
        except BadInput as error:
            refused = (_fault(str(error), text),)
    rate = config.rate
    versions = () if tls is None else dict.fromkeys((tls.lowest.value, tls.highest.value))
    return (
        WebMeaning(
            tls=" to ".join(versions) or "off",
            client_certificate="none" if tls is None else tls.client_certificate.value,
            users=tuple(config.users),
            headers=tuple(name for name, _ in config.headers),
            requests="unlimited"
            if rate is None
            else f"one in {rate.interval_seconds:g} s, {rate.burst} at once",
        ),
        refused,
        tuple(notes),
    )


_READERS: Final[Mapping[ConfigKind, Callable[[ConfigText, MachineLabels | None], _Read]]] = {
    ConfigKind.DEVICE_PLUGIN: _plugin,
    ConfigKind.MIG: _mig,
    ConfigKind.COUNTERS: _counters,
    ConfigKind.LABEL_RULES: _rules,
    ConfigKind.WEB: _web,
}
