# SPDX-License-Identifier: Apache-2.0
"""The simulated driver: sessions, handles, events and faults, and the library that pynvml loads."""
