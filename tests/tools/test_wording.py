# SPDX-License-Identifier: Apache-2.0
"""Unclear names and docstrings are found wherever Python binds a name or has a text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.wording import main, wording


@pytest.mark.parametrize(
    "code",
    [
        "def f(it): ...",
        "def f(*, it): ...",
        "def f(it, /): ...",
        "def f(*it): ...",
        "def f(**it): ...",
        "async def f(it): ...",
        "f = lambda it: 0",
        "def f():\n it = 0",
        "def f():\n it: int = 0",
        "def f():\n a, (b, *it) = 0",
        "def f():\n for it in (): ...",
        "def f():\n return [0 for it in ()]",
        "def f():\n return {0: 0 for it in ()}",
        "def f():\n if (it := 0): ...",
        "def f():\n with f() as it: ...",
        "def f():\n try: ...\n except OSError as it: ...",
        "def f():\n match 0:\n  case [*it]: ...",
        "def f():\n match 0:\n  case {**it}: ...",
        "def f():\n match 0:\n  case int() as it: ...",
        "class C:\n def f(self, it): ...",
        "def g():\n def f(it): ...",
    ],
)
def test_a_pronoun_is_found_however_it_is_bound(code: str) -> None:
    (pronoun,) = wording(ast.parse(code)).pronouns
    assert pronoun[1] == "it"


@pytest.mark.parametrize(
    "code",
    [
        "it = 0",
        "class C:\n it = 0",
        "def it(): ...",
        "def f(site): ...",
        "def f(a):\n a.it = 0",
        "def f():\n f(it=0)",
        "def f():\n class C:\n  it = 0",
    ],
)
def test_other_names_are_no_locals(code: str) -> None:
    assert wording(ast.parse(code)).pronouns == ()


def test_a_name_counts_once_for_each_function_that_binds_it() -> None:
    module = wording(ast.parse("def f(it, pod):\n it = 0\n def g(it): ...\n"))
    assert (module.names, module.pronouns) == (3, ((1, "it"), (3, "it")))


@pytest.mark.parametrize(
    ("text", "unclear"),
    [
        ("Of a pod.", True),
        ("The same by node.", True),
        ("As above.", True),
        ("That are named.", True),
        ("One entry.", True),
        ("Where it is.", True),
        ("Those of a pod.", True),
        ("Which pod.", True),
        ("Offset of a pod.", False),
        ("Assembles a node.", False),
        ("The pod.", False),
        ("Wherever.", False),
    ],
)
def test_a_docstring_opens_with_its_subject(text: str, unclear: bool) -> None:
    for code in (f'"""{text}"""', f'def f():\n """\n {text}\n\n More."""', f'X = 0\n"""{text}"""'):
        module = wording(ast.parse(code))
        assert module.docstrings == 1
        assert bool(module.openings) is unclear


def test_the_list_has_a_line_for_each_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "door.py"
    path.write_text('"""A door."""\n\n\ndef f(it):\n    """Of a door.\n\n    Oak."""\n')

    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{path}:4: it", f"{path}:5: Of a door."]
