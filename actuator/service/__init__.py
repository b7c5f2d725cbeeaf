# SPDX-License-Identifier: Apache-2.0
"""The actuator as a program: its socket, who may ask, and one change at a time."""
