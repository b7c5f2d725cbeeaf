# SPDX-License-Identifier: Apache-2.0
"""Values, their schema and the templates know the same keys; `make check` runs it, without Helm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema
import yaml

from tests.deploy.daemonset import DEPLOY

CHART: Final = DEPLOY / "chart"
VALUES: Final[Mapping[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Final[Mapping[str, Any]] = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES: Final = "\n".join(
    it.read_text()
    for it in (*sorted((CHART / "templates").rglob("*")), CHART / "files" / "kube-scheduler.yaml")
    if it.is_file()
)

PASSED_ON: Final = frozenset({"settings", "resources", "affinity"})
"""Keys whose values programs or Kubernetes define: templates pass them on as they are."""


def known(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Every key that has a default: what is passed on has none below it."""
    for name, its in schema.get("properties", {}).items():
        yield f"{path}{name}"
        if name not in PASSED_ON:
            yield from known(its, f"{path}{name}.")


def given(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Every key with a default, down to where the schema names no more."""
    for name, its in values.items():
        yield f"{path}{name}"
        below = schema.get("properties", {}).get(name, {})
        if isinstance(its, dict) and "properties" in below and name not in PASSED_ON:
            yield from given(its, below, f"{path}{name}.")


def test_the_schema_is_one_and_takes_the_values() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(VALUES)


def test_every_key_of_the_schema_has_a_default_and_no_other_has() -> None:
    assert sorted(given(VALUES, SCHEMA)) == sorted(known(SCHEMA))


def test_templates_ask_for_keys_that_are_there() -> None:
    asked = set(re.findall(r"(?:\$|\.root|\s|\()\.Values\.([\w.]+)", TEMPLATES))
    asked |= set(re.findall(r"\$values\.([\w.]+)", TEMPLATES))
    asked |= {f"agent.{it}" for it in re.findall(r"\$agent\.([\w.]+)", TEMPLATES)}
    assert len(asked) > 20
    assert asked - set(known(SCHEMA)) == set()


def test_every_key_is_asked_for_by_a_template() -> None:
    named = set(re.findall(r"\.(\w+)", TEMPLATES))
    assert {it.rpartition(".")[2] for it in known(SCHEMA)} - named == set()


def test_blocks_of_templates_are_closed() -> None:
    for file in (CHART / "templates").rglob("*.yaml"):
        text = file.read_text()
        opened = len(re.findall(r"\{\{-?\s*(?:if|range|with|define)\b", text))
        assert opened == len(re.findall(r"\{\{-?\s*end\b", text)), file
