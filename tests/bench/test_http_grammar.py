# SPDX-License-Identifier: Apache-2.0
"""The benchmark compares equal contents: both grammars serve what the other serves."""

from __future__ import annotations

from tests.bench import http_grammar


def test_both_grammars_serve_the_same_content() -> None:
    for compared in (http_grammar.scrape(rounds=1), http_grammar.call(rounds=1)):
        assert min(compared.our_seconds, compared.h11_seconds) > 0
