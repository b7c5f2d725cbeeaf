# SPDX-License-Identifier: Apache-2.0
"""PromQL as a tree of values. Pure; the one module that calls promql-parser.

That package is the extra ``promql``: the node image does not have it. Its tree is converted into
ours at once, so that nothing else depends on its types.
Source: prometheus.io/docs/prometheus/latest/querying/basics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from base.errors import BadInput

if TYPE_CHECKING:
    from types import ModuleType

MOST_CHARACTERS: Final = 16_384
"""Limit of an expression's length."""
MOST_LEVELS: Final = 150
"""Limit of brackets and operators: each may be a level of the tree, and the parser and
the functions that walk the tree use the stack."""

NAME_LABEL: Final = "__name__"

_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`|#[^\n]*', re.DOTALL)
_MATCHERS: Final = re.compile(r"\{[^{}]*\}")
_LEVEL: Final = re.compile(r"[(+\-*/%^<>=\[]|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
_MATCH_ALL: Final = (".*", "(.*)", ".*?")


class PromqlError(ValueError):
    """The text is no PromQL that the parser reads; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMatcher:
    """A condition on a label, such as ``gpu=~"0|1"``."""

    label: str
    operator: str
    """``=``, ``!=``, ``=~`` or ``!~``."""
    value: str

    def __str__(self) -> str:
        return f'{self.label}{self.operator}"{self.value}"'

    @property
    def matches_everything(self) -> bool:
        """Whether it matches every value, and series without the label."""
        return self.operator == "=~" and self.value in _MATCH_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Series by conditions on their labels; the metric's name is the label ``__name__``."""

    alternatives: tuple[tuple[LabelMatcher, ...], ...]
    """A series has to meet all conditions of at least one of them."""
    text: str
    """The selector in PromQL, without range and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A function with its arguments; ``-`` for a sign."""

    function: str
    arguments: tuple[Tree, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """``sum by (gpu) (...)`` and the like."""

    operator: str
    operand: Tree
    parameter: Tree | None
    labels: tuple[str, ...]
    is_without: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A binary operation: two operands, the operator and how their series are matched."""

    operator: str
    lhs: Tree
    rhs: Tree
    matching: tuple[str, ...] | None
    """Labels in ``on`` or ``ignoring``; None without either."""
    is_on: bool
    group: str
    """``left``, ``right`` or empty."""
    included: tuple[str, ...]
    """Labels in ``group_left`` or ``group_right``."""
    returns_bool: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A number, which has no text, or a string."""

    text: str | None = None


Tree = Selector | FunctionCall | Aggregation | Operation | Literal


def selectors(tree: Tree) -> tuple[Selector, ...]:
    """All selectors of an expression, from left to right."""
    match tree:
        case Selector():
            return (tree,)
        case FunctionCall():
            parts: tuple[Tree, ...] = tree.arguments
        case Aggregation():
            parts = (tree.operand,) if tree.parameter is None else (tree.parameter, tree.operand)
        case Operation():
            parts = (tree.lhs, tree.rhs)
        case Literal():
            parts = ()
    return tuple(selector for part in parts for selector in selectors(part))


def parse_promql(expression: str) -> Tree:
    """The tree of an expression; ranges, offsets, subqueries and brackets leave no trace.

    Raises PromqlError for what is no PromQL, and BadInput where the parser is not installed.
    """
    parser = _parser()
    if len(expression) > MOST_CHARACTERS:
        raise PromqlError(f"longer than {MOST_CHARACTERS} characters")
    if len(_LEVEL.findall(_MATCHERS.sub("", _STRINGS.sub("", expression)))) > MOST_LEVELS:
        raise PromqlError(f"more than {MOST_LEVELS} brackets and operators")
    try:
        parsed = parser.parse(expression)
    except Exception as error:  # of a foreign library: ValueError as a rule
        raise PromqlError(str(error).partition("\n")[0] or type(error).__name__) from error
    return _converted(parsed)


@cache
def _parser() -> ModuleType:
    try:
        import promql_parser
    except ImportError as error:
        raise BadInput(
            "reading dashboards and rules needs a parser of PromQL that is not installed:"
            " pip install 'gpuscape[promql]'"
        ) from error
    vector, matrix, scalar = (
        getattr(promql_parser.ValueType, name) for name in ("Vector", "Matrix", "Scalar")
    )
    promql_parser.register_extra_functions(
        # the name of double_exponential_smoothing before Prometheus 3
        [promql_parser.Function("holt_winters", [matrix, scalar, scalar], vector)]
    )
    return promql_parser


def _converted(node: Any) -> Tree:
    return _CONVERSIONS[type(node).__name__](node)


def _selector(node: Any) -> Selector:
    matchers = node.matchers
    alternatives = matchers.or_matchers or [matchers.matchers]
    name = (
        ()
        if node.name is None
        else (LabelMatcher(label=NAME_LABEL, operator="=", value=node.name),)
    )
    written = ",".join(map(str, matchers.matchers)) or " or ".join(
        ",".join(map(str, group)) for group in matchers.or_matchers
    )
    return Selector(
        alternatives=tuple(
            (*name, *(_matcher(matcher) for matcher in group)) for group in alternatives
        ),
        text=f"{node.name or ''}{{{written}}}" if written else str(node.name),
    )


def _matcher(node: Any) -> LabelMatcher:
    operators = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    (operator,) = (
        sign for name, sign in operators.items() if str(node.op).rpartition(".")[2] == name
    )
    return LabelMatcher(label=node.name, operator=operator, value=node.value)


def _aggregation(node: Any) -> Aggregation:
    modifier = node.modifier
    return Aggregation(
        operator=str(node.op),
        operand=_converted(node.expr),
        parameter=None if node.param is None else _converted(node.param),
        labels=() if modifier is None else tuple(modifier.labels),
        is_without=modifier is not None and str(modifier.type).endswith("Without"),
    )


def _operation(node: Any) -> Operation:
    modifier = node.modifier
    matching = None if modifier is None else modifier.matching
    card = "" if modifier is None else str(modifier.card)
    group = {"ManyToOne": "left", "OneToMany": "right"}.get(card.rpartition(".")[2], "")
    return Operation(
        operator=str(node.op),
        lhs=_converted(node.lhs),
        rhs=_converted(node.rhs),
        matching=None if matching is None else tuple(matching.labels),
        is_on=matching is not None and str(matching.type).endswith("Include"),
        group=group,
        included=() if modifier is None else tuple(modifier.group_labels or ()),
        returns_bool=modifier is not None and modifier.return_bool,
    )


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Tree]]] = {
    "VectorSelector": _selector,
    "MatrixSelector": lambda node: _selector(node.vector_selector),
    "SubqueryExpr": lambda node: _converted(node.expr),
    "ParenExpr": lambda node: _converted(node.expr),
    "UnaryExpr": lambda node: FunctionCall(function="-", arguments=(_converted(node.expr),)),
    "NumberLiteral": lambda _node: Literal(),
    "StringLiteral": lambda node: Literal(text=node.val),
    "Call": lambda node: FunctionCall(
        function=node.func.name, arguments=tuple(map(_converted, node.args))
    ),
    "AggregateExpr": _aggregation,
    "BinaryExpr": _operation,
}
