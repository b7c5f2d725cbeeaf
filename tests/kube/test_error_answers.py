# SPDX-License-Identifier: Apache-2.0
"""Which error an answer of the API server is, and which answers are nobody's."""

from __future__ import annotations

from typing import Any

import pytest

from kube import api_errors
from kube.error_answers import error_of, listed

SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction does not support."


def status(reason: str = "", message: str = "no") -> dict[str, Any]:
    """A Status object with one cause."""
    causes = [{"reason": reason, "message": "why"}] if reason else []
    return {"kind": "Status", "message": message, "details": {"causes": causes}}


@pytest.mark.parametrize(
    ("code", "answer", "expected"),
    [
        (429, status("DisruptionBudget"), api_errors.BudgetRefused),
        (429, status(), api_errors.Busy),
        (429, status("NamespaceTerminating"), api_errors.Busy),
        (403, status("DisruptionBudget"), api_errors.Forbidden),
        (500, status(message=SEVERAL), api_errors.SeveralBudgets),
        (500, status("DisruptionBudget"), api_errors.Busy),
        (503, status(message=SEVERAL), api_errors.Busy),
        (403, status("NamespaceTerminating"), api_errors.NamespaceTerminating),
        (403, status(), api_errors.Forbidden),
        (404, status("NamespaceTerminating"), api_errors.NotFound),
        (409, status(), api_errors.Conflict),
        (410, status(), api_errors.Expired),
        (401, status(), api_errors.Unauthorized),
        (422, status(), api_errors.Invalid),
        (400, {"details": {"causes": [None, {"reason": 7}]}}, api_errors.Invalid),
    ],
)
def test_code_and_causes_decide_which_error_it_is(
    code: int, answer: dict[str, Any], expected: type[api_errors.ApiError]
) -> None:
    """As kube-apiserver 1.37 answers: registry/core/pod/storage/eviction.go, api/core/v1."""
    error = error_of("evict Pod a/b", code, answer, headers={})
    assert type(error) is expected
    assert str(error).startswith(f"evict Pod a/b: {code}: ")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"items": []},
        {"metadata": {"resourceVersion": "7"}},
        {"items": [], "metadata": {"resourceVersion": 7}},
        {"items": [], "metadata": None},
    ],
)
def test_an_answer_without_items_or_version_is_no_list(answer: dict[str, Any]) -> None:
    with pytest.raises(api_errors.Unreachable, match="list Nodes: the answer is not from"):
        listed("list Nodes", answer)


@pytest.mark.parametrize(("items", "expected"), [(None, []), ([], []), ([{"a": 1}], [{"a": 1}])])
def test_items_of_a_list_may_be_null(items: Any, expected: list[Any]) -> None:
    """As servers written in Go give an empty list."""
    meta = {"resourceVersion": "7"}
    assert listed("list Nodes", {"items": items, "metadata": meta}) == (expected, meta)
