# SPDX-License-Identifier: Apache-2.0
"""Every test here sees an idle host."""

from tests.idle_host import idle_host

__all__ = ["idle_host"]
