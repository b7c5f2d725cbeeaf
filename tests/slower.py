# SPDX-License-Identifier: Apache-2.0
"""How many times longer than usual tests may wait for what is bound to come."""

from __future__ import annotations

import os
from typing import Final

SLOWER: Final = float(os.environ.get("SLOWER", "1"))
"""1 unless the variable SLOWER says more, as in a guest of :mod:`tests.uml`."""
