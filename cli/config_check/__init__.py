# SPDX-License-Identifier: Apache-2.0
"""``gpuscape check-config``: configuration files, judged by the readers that the agent uses."""
