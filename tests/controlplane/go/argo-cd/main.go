// SPDX-License-Identifier: Apache-2.0

// Argo CD's engine in the loop that its controller runs it in: reads an application's rendered
// manifests from standard input, syncs the cluster with them, prunes what is no longer among them,
// and prints each object with what came of it.
//
//	argo-cd-sync KUBECONFIG NAMESPACE < manifests.yaml
//
// As the controller: a List counts as its items, of objects of one name the last one counts, and
// every pass compares with the cluster anew. Source: Argo CD, reposerver/repository/repository.go
// and controller/state.go, controller/sync.go.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2/textlogger"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
)

const (
	tracking = "argocd.argoproj.io/tracking-id"
	patience = 5 * time.Minute
	pause    = time.Second
)

func main() {
	if err := synced(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func synced(kubeconfig string, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	live := cache.NewClusterCache(config, cache.SetLogr(log), cache.SetPopulateResourceInfoHandler(
		func(object *unstructured.Unstructured, _ bool) (any, bool) {
			tracked := object.GetAnnotations()[tracking] != ""
			return tracked, tracked
		},
	))
	if err := live.EnsureSynced(); err != nil {
		return err
	}
	wanted, err := manifests(namespace, live)
	if err != nil {
		return err
	}
	return passes(config, live, wanted, namespace, log)
}

// manifests are the objects of standard input, each marked as the application's.
func manifests(namespace string, known kube.ResourceInfoProvider) ([]*unstructured.Unstructured, error) {
	content, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	read, err := kube.SplitYAML(content)
	if err != nil {
		return nil, err
	}
	last := map[kube.ResourceKey]*unstructured.Unstructured{}
	var order []kube.ResourceKey
	add := func(object runtime.Object) error {
		one := object.(*unstructured.Unstructured)
		key := kube.GetResourceKey(one)
		if namespaced, err := known.IsNamespaced(key.GroupKind()); err == nil && namespaced {
			one.SetNamespace(namespaceOf(one, namespace))
			key = kube.GetResourceKey(one)
		}
		annotations := one.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = "gpuscape:" + key.String()
		one.SetAnnotations(annotations)
		if _, there := last[key]; !there {
			order = append(order, key)
		}
		last[key] = one
		return nil
	}
	for _, one := range read {
		if one.IsList() {
			err = one.EachListItem(add)
		} else {
			err = add(one)
		}
		if err != nil {
			return nil, err
		}
	}
	var wanted []*unstructured.Unstructured
	for _, key := range order {
		wanted = append(wanted, last[key])
	}
	return wanted, nil
}

func namespaceOf(one *unstructured.Unstructured, otherwise string) string {
	if own := one.GetNamespace(); own != "" {
		return own
	}
	return otherwise
}

// passes compares and syncs until the operation has ended; an error where it failed.
func passes(
	config *rest.Config, live cache.ClusterCache, wanted []*unstructured.Unstructured, namespace string, log logr.Logger,
) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	phase, message, results := common.OperationRunning, "", []common.ResourceSyncResult{}
	started := metav1.Now()
	for !phase.Completed() {
		found, err := live.GetManagedLiveObjs(wanted, func(r *cache.Resource) bool { return r.Info == true })
		if err != nil {
			return err
		}
		compared := sync.Reconcile(wanted, found, namespace, live)
		pass, cleanup, err := sync.NewSyncContext(
			"revision", compared, config, config, &kube.KubectlCmd{Log: log, Tracer: tracing.NopTracer{}}, namespace,
			sync.WithInitialState(phase, message, results, started), sync.WithPrune(true), sync.WithLogr(log),
		)
		if err != nil {
			return err
		}
		pass.Sync()
		phase, message, results = pass.GetState()
		cleanup()
		select {
		case <-ctx.Done():
			return fmt.Errorf("still %s after %s: %s", phase, patience, message)
		case <-time.After(pause):
		}
	}
	for _, each := range results {
		fmt.Printf("%s\t%s\t%s\n", each.ResourceKey.String(), each.Status, each.Message)
	}
	if phase != common.OperationSucceeded {
		return fmt.Errorf("%s: %s", phase, message)
	}
	return nil
}
