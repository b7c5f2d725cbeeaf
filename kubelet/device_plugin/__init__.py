# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device-plugin API, v1beta1: its messages, registration, and a plugin's server."""
