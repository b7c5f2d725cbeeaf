# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler`` and its subcommands."""
