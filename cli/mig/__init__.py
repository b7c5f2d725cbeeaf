# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig`` and its subcommands."""
