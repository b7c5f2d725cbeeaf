# SPDX-License-Identifier: Apache-2.0
"""Commands that run until they are ended: agent, actuator, coordinator and devices."""
