# SPDX-License-Identifier: Apache-2.0
"""The actuator as a program: its socket, its permitted clients, and one change at a time."""
