"""The kubelet's pod-resources socket: which pod has which devices. The only home of gRPC."""
