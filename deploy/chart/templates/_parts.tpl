{{/* The image, by its digest where one is given. Of: the chart's values, and perhaps a canary's. */}}
{{- define "gpuscape.image" -}}
{{- $image := .image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is empty: name the registry that has your build of gpuscape, as in --set image.repository=registry.example/gpuscape (docs/install.md builds it)" -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .version }}
{{- end -}}
{{- end }}

{{/* What names of objects without a namespace end with, so that two namespaces cannot clash. */}}
{{- define "gpuscape.suffix" -}}
{{- if ne .Release.Namespace "gpuscape" }}.{{ .Release.Namespace }}{{ end -}}
{{- end }}

{{/* Labels of a program's objects, by its component. */}}
{{- define "gpuscape.labels" -}}
app.kubernetes.io/name: gpuscape
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* The chart's version, for programs to compare with their own. */}}
{{- define "gpuscape.version" -}}
- {name: MANIFESTS_VERSION, value: {{ .Chart.AppVersion | quote }}}
{{- end }}

{{/* Settings as environment variables: a program knows each of its settings as one. */}}
{{- define "gpuscape.settings" -}}
{{- range $name, $value := . }}
- name: GPUSCAPE_{{ $name | replace "-" "_" | upper }}
  value: {{ include "gpuscape.settingText" $value | quote }}
{{- end }}
{{- end }}

{{/* A setting's value as the text of its variable. */}}
{{- define "gpuscape.settingText" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}

{{/* Nodes in change at once: the coordinator's setting, and the bound that its policy has. */}}
{{- define "gpuscape.slots" -}}
{{- $settings := .Values.mig.coordinator.settings -}}
{{- if hasKey $settings "slots" }}{{ include "gpuscape.settingText" $settings.slots | int }}{{ else }}1{{ end -}}
{{- end }}

{{/* A duration in milliseconds, of text as 200ms or 3s. */}}
{{- define "gpuscape.milliseconds" -}}
{{- if hasSuffix "ms" . }}{{ trimSuffix "ms" . | int64 }}{{ else }}{{ trimSuffix "s" . | int64 | mul 1000 }}{{ end -}}
{{- end }}

{{/* What every pod has: an account with a token of its own that ends after an hour. */}}
{{- define "gpuscape.account" -}}
serviceAccountName: gpuscape-{{ .component }}
automountServiceAccountToken: false  # it gets one of its own, below
enableServiceLinks: false
{{- with .values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuscape.token" -}}
- name: token
  projected:
    defaultMode: {{ . }}
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI:
        items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]
{{- end }}

{{/* The certificate of one side. A pod waits until the Secret has all of it, and keeps what it has. */}}
{{- define "gpuscape.tls" -}}
- name: tls
  secret:
    secretName: {{ . }}
    items:
    - {key: ca.crt, path: ca.crt}
    - {key: tls.crt, path: tls.crt}
    - {key: tls.key, path: tls.key}
{{- end }}

{{- define "gpuscape.confined" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Probes of a program at /livez and /readyz. Of: port, scheme, seconds between readiness probes. */}}
{{- define "gpuscape.probes" -}}
startupProbe:
  httpGet: &live {path: /livez, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: *live
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: {{ .readyPeriod }}
  timeoutSeconds: 5
{{- end }}

{{/* Where replicas of a program go. Of: its component, and its values as "of". */}}
{{- define "gpuscape.replicas" -}}
priorityClassName: {{ .of.priorityClassName }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .of.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .of.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "gpuscape.labels" .component | nindent 6 }}
{{- end }}

{{/* Keeps pods near the control plane, and off nodes with GPUs unless onGpuNodes is set. */}}
{{- define "gpuscape.offGpuNodes" -}}
affinity:
  nodeAffinity:
    {{- if not .onGpuNodes }}
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: nvidia.com/gpu.count, operator: DoesNotExist}
        - {key: nvidia.com/gpu.present, operator: DoesNotExist}
    {{- end }}
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference:
        matchExpressions:
        - {key: node-role.kubernetes.io/control-plane, operator: Exists}
{{- end }}

{{- define "gpuscape.budget" }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: gpuscape-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "gpuscape.labels" .component | nindent 6 }}
{{- end }}

{{/* Selects the agents' pods, those of a canary too. */}}
{{- define "gpuscape.agents" -}}
{{- if .Values.agent.canary.nodes -}}
matchLabels: {app.kubernetes.io/name: gpuscape}
matchExpressions:
- {key: app.kubernetes.io/component, operator: In, values: [agent, agent-canary]}
{{- else -}}
matchLabels:
  {{- include "gpuscape.labels" "agent" | nindent 2 }}
{{- end }}
{{- end }}
