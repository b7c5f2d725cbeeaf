"""The HTTP extender that kube-scheduler asks."""
