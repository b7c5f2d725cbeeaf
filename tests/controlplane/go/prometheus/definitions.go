//go:build never

// Package definitions keeps the module whose custom resource definitions the tests apply:
// without an import of it, go mod tidy would drop it.
package definitions

import _ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
