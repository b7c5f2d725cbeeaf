"""The kubelet's pod-resources socket: which devices which pod was given. The only home of gRPC."""
