# SPDX-License-Identifier: Apache-2.0
"""Reads the YAML configuration of dcgm-exporter, and refuses what it refuses. Pure.

Source: dcgm-exporter 4.8.3 and 4.8.4, ``internal/pkg/appconfig/yaml_config.go``: version 1 has one
``collection``, version 2 has ``collections``. A key that neither has is refused, as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from base.text.go_duration import go_nanoseconds
from base.words import quoted
from base.yaml_places import YamlValue, read_yaml
from exporters.dcgm.peer.peer_config import ConfiguredFlag, MetricRow, PeerConfig

_MILLISECOND: Final = 10**6
_EVERYTHING: Final = ("*",)

_FLAGS: Final[Mapping[str, str]] = {
    "metrics.file": "collectors",
    "metrics.enableExporterMetrics": "enable-exporter-metrics",
    "server.maxConcurrentScrapes": "max-concurrent-scrapes",
    "sources.dcgm.watch.maxKeepAge": "watch-max-keep-age",
    "sources.dcgm.watch.maxKeepSamples": "watch-max-keep-samples",
    "sources.dcgm.detectBindUnbind.enabled": "enable-gpu-bind-unbind-watch",
    "sources.dcgm.detectBindUnbind.pollInterval": "gpu-bind-unbind-poll-interval",
    "collection.retention.maxAge": "watch-max-keep-age",
    "collection.retention.maxSamples": "watch-max-keep-samples",
}
"""Keys to the flags of dcgm-exporter that set the same."""

_BIND: Final = ("enabled", "pollInterval")
_WATCH: Final = ("maxKeepAge", "maxKeepSamples")
_RETENTION: Final = ("maxAge", "maxSamples")


def read_configuration(text: str, file: str) -> PeerConfig:
    """What a configuration sets. Raises BadInput with file, line and key for any other text."""
    root = read_yaml(text, file)
    root.refuse_config_map()
    top = root.mapping(
        ("version", "metrics", "collection", "collections", "sources", "server"),
    )
    if "version" not in top:
        raise root.wrong("version is missing: write version: 2")
    version = top["version"].one_of(("1", "2"))
    other = {"1": "collections", "2": "collection"}[version]
    if other in top:
        raise top[other].wrong(f"version {version} has no {other}")
    metrics = _of(top, "metrics").mapping(("file", "fields", "enableExporterMetrics"))
    if "metrics" in top:
        _check_metrics(top["metrics"], metrics)
    sources = _of(top, "sources").mapping(("dcgm",))
    known = ("detectBindUnbind",) if version == "1" else ("watch", "detectBindUnbind")
    dcgm = _of(sources, "dcgm").mapping(known)
    collection = _of(top, "collection").mapping(("interval", "retention", "watchGroups"))
    values = (
        *(value for key, value in metrics.items() if key != "fields"),
        *_of(top, "server").mapping(("maxConcurrentScrapes",)).values(),
        *_of(dcgm, "watch").mapping(_WATCH).values(),
        *_of(dcgm, "detectBindUnbind").mapping(_BIND).values(),
        *_of(collection, "retention").mapping(_RETENTION).values(),
    )
    flags = [
        ConfiguredFlag(flag=_FLAGS[value.key], text=value.text().strip(), place=value.place)
        for value in values
    ]
    intervals, notes = _intervals(collection, _of(top, "collections"))
    fields = metrics.get("fields")
    return PeerConfig(
        flags=(*flags, *intervals),
        rows=tuple(_rows(fields)) if fields else (),
        rows_place=fields.place if fields else "",
        file=file,
        notes=tuple(notes),
    )


_NOTHING: Final = read_yaml("", "")


def _of(entries: Mapping[str, YamlValue], key: str) -> YamlValue:
    return entries.get(key, _NOTHING)


def _check_metrics(place: YamlValue, metrics: Mapping[str, YamlValue]) -> None:
    sources = [key for key in ("file", "fields") if key in metrics and not metrics[key].is_null]
    if len(sources) > 1:
        raise place.wrong("file and fields exclude each other: give one of them")
    if not sources and "enableExporterMetrics" not in metrics:
        raise place.wrong("expected file, fields or enableExporterMetrics")


def _rows(fields: YamlValue) -> Iterator[MetricRow]:
    seen: set[str] = set()
    for index, entry in enumerate(fields.items()):
        words = entry.mapping(("name", "prometheusType", "help"))
        texts = {key: value.text().strip() for key, value in words.items()}
        for key in ("name", "prometheusType", "help"):
            if not texts.get(key):
                raise entry.wrong(f"{key} of entry {index} is missing")
        if texts["name"] in seen:
            raise words["name"].wrong(f"{quoted(texts['name'])} stands in an earlier entry already")
        seen.add(texts["name"])
        yield MetricRow(
            line=words["name"].line,
            name=texts["name"],
            kind=texts["prometheusType"],
            help_text=texts["help"],
        )


def _intervals(
    collection: Mapping[str, YamlValue], collections: YamlValue
) -> tuple[list[ConfiguredFlag], list[str]]:
    """The interval of all counters, and notes about those that some are to have of their own."""
    flags, notes = [], []
    if "interval" in collection:
        flags.append(_interval(collection["interval"]))
    for group in _of(collection, "watchGroups").items():
        entries = group.mapping(("name", "interval", "fields", "retention"))
        notes.append(_note(group, _required(group, entries, "interval")))
    for group in collections.items():
        entries = group.mapping(("name", "every", "metrics", "sources"))
        every = _required(group, entries, "every")
        include = _of(_of(entries, "metrics").mapping(("include",)), "include").texts()
        if include == _EVERYTHING:
            flags.append(_interval(every))
        else:
            notes.append(_note(group, every))
    return flags, notes


def _required(group: YamlValue, entries: Mapping[str, YamlValue], key: str) -> YamlValue:
    for name in ("name", key):
        if not _of(entries, name).text().strip():
            raise group.wrong(f"{name} is missing")
    return entries[key]


def _interval(value: YamlValue) -> ConfiguredFlag:
    milliseconds = _milliseconds(value)
    return ConfiguredFlag(flag="collect-interval", text=str(milliseconds), place=value.place)


def _note(group: YamlValue, every: YamlValue) -> str:
    _milliseconds(every)
    return f"{group.place} does nothing: all counters are read at one interval."


def _milliseconds(value: YamlValue) -> int:
    """Whole milliseconds of a duration as Go writes it."""
    text = value.text().strip()
    try:
        milliseconds, rest = divmod(go_nanoseconds(text), _MILLISECOND)
    except ValueError:
        milliseconds = rest = 0
    if milliseconds < 1 or rest:
        raise value.wrong(
            f"{quoted(text)} is no duration of whole milliseconds, such as 500ms, 30s or 1m30s"
        )
    return milliseconds
