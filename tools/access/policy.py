# SPDX-License-Identifier: Apache-2.0
"""A ValidatingAdmissionPolicy as a value: whom it holds, what it matches, which rules hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api import names
from tools.access import cel
from tools.access.cel import Expression

Object = dict[str, Any]

EVERYTHING = ("*",)
WRITES = ("CREATE", "UPDATE")
KUBELETS = "system:nodes"
"""The group of every kubelet's credential."""
EVERYBODY = "everybody"
"""Holder of a policy that holds whoever asks, cluster admins included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition on requests; a request that breaks it is refused."""

    name: str
    holds: Expression
    message: str
    """Text of the refusal, behind the policy's name."""
    culprits: Expression | None = None
    """A list of keys to name behind the message."""

    def validation(self) -> Object:
        """The rule as an entry of the policy's ``validations``."""
        fields = {"expression": self.holds, "message": self.message}
        if self.culprits is not None:
            fields["messageExpression"] = (
                f"{cel.quoted(f'{self.message}: ')} + {self.culprits}.join(', ')"
            )
        return fields


def none_of(name: str, culprits: Expression, message: str) -> Rule:
    """A rule that refuses some keys, and names them."""
    return Rule(name=name, holds=f"{culprits}.size() == 0", message=message, culprits=culprits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules for what one account, or every kubelet, asks of some resources."""

    name: str
    holder: str
    """The account held, KUBELETS, or EVERYBODY."""
    exempt: str = ""
    """An account that a policy for EVERYBODY does not hold."""
    conditions: Mapping[str, Expression] = field(default_factory=dict)
    """What else must hold of a request for it to be judged, by name. They are asked first and
    cost least; variables are not there yet."""
    group: str
    resources: tuple[str, ...]
    versions: tuple[str, ...] = ("v1",)
    """Requests in others are shown to the policy in one of these, where they convert."""
    operations: tuple[str, ...] = WRITES
    variables: Mapping[str, Expression] = field(default_factory=dict)
    """Variables of this policy alone, besides :data:`tools.access.cel.VARIABLES`."""
    rules: tuple[Rule, ...]

    def objects(self, namespace: str) -> tuple[Object, Object]:
        """The policy and its binding, for an installation in ``namespace``."""
        metadata = {"name": names.clusterwide(self.name, namespace)}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [self._matched()]},
            "matchConditions": [
                {"name": name, "expression": expression}
                for name, expression in {**self._held(namespace), **self.conditions}.items()
            ],
            "variables": [
                {"name": name, "expression": expression}
                for name, expression in self._needed(namespace).items()
            ],
            "validations": [rule.validation() for rule in self.rules],
        }
        bound = {"policyName": metadata["name"], "validationActions": ["Deny", "Audit"]}
        kind = "ValidatingAdmissionPolicy"
        return _object(kind, metadata, spec), _object(f"{kind}Binding", metadata, bound)

    def _matched(self) -> Object:
        return {
            "apiGroups": [self.group],
            "apiVersions": list(self.versions),
            "operations": list(self.operations),
            "resources": list(self.resources),
        }

    def _held(self, namespace: str) -> Mapping[str, Expression]:
        """The condition that names whoever is held; for everybody, whoever is not."""
        if self.holder == KUBELETS:
            return {"holder": f"{cel.quoted(KUBELETS)} in request.userInfo.?groups.orValue([])"}
        account, is_held = (self.exempt, "!=") if self.holder == EVERYBODY else (self.holder, "==")
        username = cel.quoted(names.username(account, namespace))
        return {"holder": f"request.userInfo.username {is_held} {username}"}

    def _needed(self, namespace: str) -> Mapping[str, Expression]:
        """The variables that the rules use, and those that these use in turn."""
        known = {"home": cel.quoted(namespace), **cel.VARIABLES, **self.variables}
        text = "\n".join(f"{rule.holds} {rule.culprits}" for rule in self.rules)
        needed = []
        for name in reversed(known):
            if re.search(rf"\bvariables\.{name}\b", text):
                needed.append(name)
                text += f"\n{known[name]}"
        return {name: known[name] for name in reversed(needed)}


def _object(kind: str, metadata: Object, spec: Object) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": dict(metadata),
        "spec": spec,
    }
