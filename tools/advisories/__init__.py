# SPDX-License-Identifier: Apache-2.0
"""Compare pinned versions with published security advisories."""
