# SPDX-License-Identifier: Apache-2.0
"""What the actuator's socket carries, and a client of it."""
