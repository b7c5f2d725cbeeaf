# SPDX-License-Identifier: Apache-2.0
"""All tests, and the programs that run them; imported before any other module of theirs."""

import os

# gRPC reads both once, when it is imported. Its handlers of fork may abort a child before exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
