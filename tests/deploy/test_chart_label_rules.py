# SPDX-License-Identifier: Apache-2.0
"""Labels of an admin's own, installed: the agent's file, the rights to its keys, and mistakes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from api.key_kinds import MOST_RULES, RESERVED, rule_key_fault
from labelers.label_rules import LabelRule
from labelers.label_rules_file import parse_label_rules
from tests.deploy.chart import ChartRefusedError, kustomized, objects, rendered
from tests.deploy.daemonset import DEPLOY, Manifest
from tests.examples import FOLDER
from tools.access.files import parts_of

pytestmark = pytest.mark.cluster

TYPE, MEMORY, FORMER = "example.com/gpu-type", "example.com/gpu-memory", "example.com/gpu-model"
RULES: Final[list[dict[str, Any]]] = [
    {
        "key": TYPE,
        "values": [
            {"match": {"product": "*A100*80GB*", "mig-capable": "true"}, "value": "a100-80"},
            {"match": {"product": "*"}, "value": "1.10"},
            {"value": "yes"},
        ],
    },
    {"key": MEMORY, "value": "{memory-gib}Gi"},
]
"""With texts that YAML takes for a number and a switch where nothing quotes them."""
AGENTS: Final = ("gpuscape-agent", "gpuscape-agent-canary")


def made(
    agent: dict[str, Any], namespace: str = "gpuscape"
) -> dict[tuple[str, str, str], Manifest]:
    return objects(rendered({"agent": agent}, namespace=namespace))


def parsed(text: str) -> list[LabelRule]:
    """The rules of a file, wherever they stand in it."""
    return [replace(rule, place="") for rule in parse_label_rules(text, "rules.yaml")]


@pytest.mark.parametrize("namespace", ["gpuscape", "gpus"])
@pytest.mark.parametrize("former", [[], [FORMER]])
@pytest.mark.parametrize("rules", [[], RULES])
def test_policies_allow_exactly_the_keys_of_rules(
    rules: list[dict[str, Any]], former: list[str], namespace: str
) -> None:
    """Those of rules that were taken out too: their labels have to be removed."""
    keys = [*(rule["key"] for rule in rules), *former]
    wanted = objects(yaml.dump_all(parts_of(namespace, keys)["base"]))
    found = made({"labelRules": rules, "formerLabelKeys": former}, namespace)
    assert {key: found.get(key) for key in wanted} == wanted


def test_agents_get_the_rules_as_their_file_and_a_canary_does_too() -> None:
    found = made({"labelRules": RULES, "canary": {"nodes": "pool=canary"}})
    config = found["ConfigMap", "gpuscape", "gpuscape-label-rules"]["data"]
    assert parsed(config["rules.yaml"]) == parsed(yaml.safe_dump({"labels": RULES}))
    for name in AGENTS:
        pod = found["DaemonSet", "gpuscape", name]["spec"]["template"]["spec"]
        agent = pod["containers"]["agent"]
        file = Path(agent["env"]["GPUSCAPE_LABEL_RULES"]["value"])
        mount = agent["volumeMounts"][str(file.parent)]
        assert mount["readOnly"]
        volume = pod["volumes"][mount["name"]]
        assert volume["configMap"] == {"name": "gpuscape-label-rules"}
        assert file.name in config


def checksums(agent: dict[str, Any]) -> dict[str, str]:
    """The annotations of the agents' pods."""
    (template,) = (
        it["spec"]["template"] for key, it in made(agent).items() if key[0] == "DaemonSet"
    )
    annotations: dict[str, str] = template["metadata"].get("annotations", {})
    return annotations


def test_other_rules_start_the_agents_again_and_former_keys_do_not() -> None:
    name = "checksum/label-rules"
    first = checksums({"labelRules": RULES})[name]
    assert len(first) == hashlib.sha256().digest_size * 2
    assert checksums({"labelRules": RULES, "formerLabelKeys": [FORMER]})[name] == first
    assert checksums({"labelRules": RULES[:1]})[name] != first
    annotated = checksums({"labelRules": RULES, "podAnnotations": {"example.com/own": "kept"}})
    assert annotated == {name: first, "example.com/own": "kept"}


def test_without_rules_agents_have_no_file() -> None:
    assert made({"formerLabelKeys": [FORMER]}).keys() == made({}).keys()
    assert checksums({"formerLabelKeys": [FORMER]}) == {}


def test_the_values_of_the_examples_are_the_rules_of_the_examples() -> None:
    """One file is for the chart, the other for everything else."""
    folder = FOLDER / "labels"
    found = objects(rendered(yaml.safe_load((folder / "agent-values.yaml").read_text())))
    config = found["ConfigMap", "gpuscape", "gpuscape-label-rules"]["data"]
    assert parsed(config["rules.yaml"]) == parsed((folder / "rules.yaml").read_text())


def on_the_page(file: str) -> str:
    """The file that the page on labels shows under this name."""
    page = (DEPLOY.parent / "docs" / "labels.md").read_text()
    (text,) = re.findall(rf"```yaml\n(# {re.escape(file)}\n.*?)```", page, re.DOTALL)
    return str(text)


def test_the_pages_values_are_values() -> None:
    values = yaml.safe_load(on_the_page("values.yaml"))
    found = objects(rendered(values))
    assert ("ConfigMap", "gpuscape", "gpuscape-label-rules") in found
    policy = found["ValidatingAdmissionPolicy", "", "gpuscape-agent-node"]
    for key in (MEMORY, FORMER):
        assert f"'{key}'," in str(policy["spec"]["variables"])


def by_the_page(folder: Path, rules: list[dict[str, Any]]) -> tuple[str, Manifest, Manifest]:
    """What the page's kustomization makes: the ConfigMap's name, its data, and the agents' pod."""
    folder.mkdir()
    (folder / "gpuscape").symlink_to(DEPLOY.parent)
    (folder / "kustomization.yaml").write_text(on_the_page("kustomization.yaml"))
    (folder / "rules.yaml").write_text(yaml.safe_dump({"labels": rules}))
    found = objects(kustomized(folder))
    (name,) = (it for kind, _, it in found if kind == "ConfigMap")
    pod = found["DaemonSet", "gpuscape", AGENTS[0]]["spec"]["template"]["spec"]
    return name, found["ConfigMap", "gpuscape", name]["data"], pod


def test_the_pages_kustomization_makes_the_agents_pod_as_the_chart_does(tmp_path: Path) -> None:
    """But for the ConfigMap's name, which other rules change, so that agents start again."""
    name, data, pod = by_the_page(tmp_path / "all", RULES)
    assert parsed(data["rules.yaml"]) == parsed(yaml.safe_dump({"labels": RULES}))
    assert pod["volumes"]["label-rules"]["configMap"] == {"name": name}
    pod["volumes"]["label-rules"]["configMap"] = {"name": "gpuscape-label-rules"}
    found = made({"labelRules": RULES})
    assert pod == found["DaemonSet", "gpuscape", AGENTS[0]]["spec"]["template"]["spec"]
    assert by_the_page(tmp_path / "one", RULES[:1])[0] != name


KEYS: Final = (
    *(f"{prefix}/gpu-type" for prefix in RESERVED),
    *(f"a.b.{prefix}/gpu-type" for prefix in RESERVED),
    *(f"not-{prefix}/gpu-type" for prefix in RESERVED),
    *("gpu-type", "/gpu-type", "example.com/", "example.com", "", "a/b/c", "kubernetes.io"),
    *("nvidiaXcom/a", "Example.com/a", "-a.com/b", "a..b/c", "a.b/-c", "a.b/c_", "a.b/c.D_e-9"),
    *("a.b/c'] || true || k in ['d", "a.b/{{c}}", "a.b/c\n", "\na.b/c", "a.b /c", "ä.b/c"),
    *(f"{'a' * 253}/b", f"{'a' * 254}/b", f"a.b/{'c' * 63}", f"a.b/{'c' * 64}"),
)


def test_keys_that_the_agent_takes_the_chart_takes() -> None:
    legal = [key for key in KEYS if rule_key_fault(key) is None]
    assert len(legal) > 5
    rendered({"agent": {"labelRules": [{"key": key, "value": "x"} for key in legal]}})


@pytest.mark.long
@pytest.mark.parametrize("key", [key for key in KEYS if rule_key_fault(key) is not None])
def test_keys_that_the_agent_refuses_the_chart_refuses_in_the_same_words(key: str) -> None:
    """What was let through would stand in a policy's expression."""
    for value, given in (
        ("labelRules", [{"key": key, "value": "x"}]),
        ("formerLabelKeys", [key]),
    ):
        with pytest.raises(ChartRefusedError) as refused:
            rendered({"agent": {value: given}})
        assert f"agent.{value}: " in str(refused.value)
        assert f"cannot be a label of a rule: {rule_key_fault(key)}" in str(refused.value)


def rule(**parts: object) -> dict[str, Any]:
    """Values with one rule."""
    return {"labelRules": [{"key": TYPE, **parts}]}


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a key without a prefix": (
        {"labelRules": [{"key": "gpu-type", "value": "a"}]},
        "put a domain of yours before it, as in example.com/gpu-type",
    ),
    "a key of NVIDIA's": (
        {"labelRules": [{"key": "nvidia.com/gpu.kind", "value": "a"}]},
        "nvidia.com is reserved: use a domain of yours, as in example.com/gpu-type",
    ),
    "a former key below one of Kubernetes's": (
        {"formerLabelKeys": ["node-role.kubernetes.io/gpu"]},
        'agent.formerLabelKeys: "node-role.kubernetes.io/gpu" cannot be a label of a rule',
    ),
    "two rules for one label": (
        {"labelRules": [{"key": TYPE, "value": "a"}, {"key": TYPE, "value": "b"}]},
        f"agent.labelRules has two rules for {TYPE}: put all its values into one",
    ),
    "a former key that has a rule": (
        {"labelRules": RULES, "formerLabelKeys": [MEMORY]},
        f"agent.formerLabelKeys has {MEMORY}, which agent.labelRules or the list itself has",
    ),
    "a former key twice": (
        {"formerLabelKeys": [FORMER, FORMER]},
        f"agent.formerLabelKeys has {FORMER}, which",
    ),
    "no key": (
        {"labelRules": [{"value": "a"}]},
        "at '/agent/labelRules/0': missing property 'key'",
    ),
    "a rule without values": (rule(), f"give {TYPE} either value or values"),
    "two ways at once": (
        rule(value="a", values=[{"value": "b"}]),
        f"give {TYPE} either value or values",
    ),
    "an empty list of values": (rule(values=[]), "at '/agent/labelRules/0/values': minItems"),
    "a value behind one that is always taken": (
        rule(values=[{"value": "a"}, {"value": "b"}]),
        f'the value "a" of {TYPE} has no match, so it is always taken: put it last',
    ),
    "a match of nothing": (
        rule(values=[{"match": {}, "value": "a"}]),
        "at '/agent/labelRules/0/values/0/match': minProperties",
    ),
    "a field that is not known": (
        rule(values=[{"match": {"model": "*"}, "value": "a"}]),
        "additional properties 'model' not allowed",
    ),
    "a pattern with a blank": (
        rule(values=[{"match": {"product": "A100 *"}, "value": "a"}]),
        "at '/agent/labelRules/0/values/0/match/product': 'A100 *' does not match pattern",
    ),
    "a placeholder that is not known": (
        rule(value="{memory}Gi"),
        "at '/agent/labelRules/0/value': '{memory}Gi' does not match pattern",
    ),
    "a value that is no label's": (
        rule(values=[{"value": "a b"}]),
        "at '/agent/labelRules/0/values/0/value': 'a b' does not match pattern",
    ),
    "a value that is too long": (rule(value="{count}" + "a" * 63), "is too long: a label's has up"),
    "one among several that is too long": (
        rule(values=[{"value": "a" * 64}]),
        f"of {TYPE} is too long: a label's has up to 63 characters",
    ),
    "a value that is a number": (
        rule(value=1.10),
        "at '/agent/labelRules/0/value': got number, want string",
    ),
    "more rules than a Node takes": (
        {"labelRules": [{"key": f"a.b/c{n}", "value": "x"} for n in range(MOST_RULES + 1)]},
        "at '/agent/labelRules': maxItems",
    ),
    "a file of one's own as well": (
        {"labelRules": RULES, "settings": {"label-rules": "/rules.yaml"}},
        "agent.settings.label-rules: the chart sets it from another value",
    ),
}
"""Typical mistakes to what a person reads."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_rule_is_refused_by_its_name(mistake: str) -> None:
    agent, printed = MISTAKES[mistake]
    with pytest.raises(ChartRefusedError) as refused:
        rendered({"agent": agent})
    assert printed in str(refused.value)


LEGAL: dict[str, list[dict[str, Any]]] = {
    "the most rules": [{"key": f"a.b/c{n}", "value": "x"} for n in range(MOST_RULES)],
    "no text": [{"key": TYPE, "value": ""}],
    "the longest text": [{"key": TYPE, "value": "a" * 62 + "{count}"}],
    "fields side by side": [{"key": TYPE, "value": "{family}-{count}x{memory-gib}.{cuda-version}"}],
}


@pytest.mark.parametrize("case", LEGAL)
def test_what_the_file_may_have_the_values_may_have(case: str) -> None:
    found = made({"labelRules": LEGAL[case]})
    config = found["ConfigMap", "gpuscape", "gpuscape-label-rules"]["data"]
    assert parsed(config["rules.yaml"]) == parsed(yaml.safe_dump({"labels": LEGAL[case]}))
