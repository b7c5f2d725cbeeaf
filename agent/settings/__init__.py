# SPDX-License-Identifier: Apache-2.0
"""The agent's settings, and what they mean for the machine it reads and the labels it writes."""
