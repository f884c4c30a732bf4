{{- define "paceline.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "paceline.labels" -}}
app.kubernetes.io/name: paceline
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "paceline.selector" -}}
app.kubernetes.io/name: paceline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "paceline.image" -}}
{{ .root.Values.image.repository }}/{{ eq .component "gateway" | ternary "gateway" "worker" }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "paceline.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "paceline.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* The component whose pods announce pairs. */}}
{{- define "paceline.controller" -}}
{{ eq .Values.workers.mode "raycluster" | ternary "head" "worker" }}
{{- end }}

{{- /* The components that have pods. */}}
{{- define "paceline.components" -}}
gateway worker{{ if eq .Values.workers.mode "raycluster" }} head{{ end }}
{{- end }}

{{- /* Ports of a component that serve metrics, by name. */}}
{{- define "paceline.metricsPorts" -}}
{{- if or (eq .component "gateway") (eq .component (include "paceline.controller" .root)) }}
{{- /* KubeRay adds a port of its own named metrics to the head. */}}
{{ eq .component "head" | ternary "c-metrics" "metrics" }}: 9100
{{- end }}
{{- if eq .component "worker" }}
{{- range $i := until (int (include "paceline.pairsPerPod" .root)) }}
t-metrics-{{ $i }}: {{ add 50062 (mul 3 $i) }}
d-metrics-{{ $i }}: {{ add 50063 (mul 3 $i) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What pods of all kinds share. Service links are off: a Service named "paceline" would otherwise become variables
PACELINE_*, which the services take for settings. */}}
{{- define "paceline.pod" -}}
serviceAccountName: {{ include "paceline.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "paceline.podSecurity" . | nindent 2 }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "paceline.spread" . }}
{{- with .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* Labels of a pod: nothing that a new version of the chart changes, so that it alone replaces no pod. */}}
{{- define "paceline.podMetadata" -}}
labels:
  {{- include "paceline.selector" . | nindent 2 }}
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .of.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* How many pods of a Deployment there are to be. Under a scaler: as many as run now, so that no upgrade takes away
what the scaler added, and none is said where there are none or nobody can be asked. */}}
{{- define "paceline.replicas" -}}
{{- $name := printf "%s-%s" (include "paceline.name" .root) .component -}}
{{- if .of.autoscaling.enabled -}}
{{- $live := lookup "apps/v1" "Deployment" .root.Release.Namespace $name -}}
{{- /* Workers were a StatefulSet up to 0.1.0. */ -}}
{{- if and (not $live) (eq .component "worker") }}{{ $live = lookup "apps/v1" "StatefulSet" .root.Release.Namespace $name }}{{ end -}}
{{- with $live }}replicas: {{ .spec.replicas }}{{ end -}}
{{- else -}}
replicas: {{ .of.replicas }}
{{- end -}}
{{- end }}

{{- /* Whether clients of the gateway speak TLS: not empty when they do. */}}
{{- define "paceline.clientTls" -}}
{{- if or .Values.tls.secretName .Values.tls.certManager.enabled }}true{{ end }}
{{- end }}

{{- /* Names of the client-facing certificate, the one that routes ask for first. */}}
{{- define "paceline.clientNames" -}}
{{- if .Values.tls.certManager.serviceNames }}
- {{ include "paceline.name" . }}.{{ .Release.Namespace }}.svc
- {{ include "paceline.name" . }}-headless.{{ .Release.Namespace }}.svc
{{- end }}
{{- range .Values.tls.certManager.dnsNames }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Not empty where a GRPCRoute and an HTTPRoute would be on one listener with a host name in common, which the Gateway
API forbids. */}}
{{- define "paceline.routesMeet" -}}
{{- $listeners := list }}
{{- range $one := .grpcRoute.parentRefs }}
{{- range $other := $.httpRoute.parentRefs }}
{{- if and (eq (toJson (omit $one "sectionName")) (toJson (omit $other "sectionName"))) (or (not $one.sectionName) (not $other.sectionName) (eq $one.sectionName $other.sectionName)) }}
{{- $listeners = append $listeners $one.name }}
{{- end }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- range $one := .grpcRoute.hostnames | default (list "") }}
{{- range $other := $.httpRoute.hostnames | default (list "") }}
{{- if or (not $one) (not $other) (eq $one $other) (and (hasPrefix "*." $one) (hasSuffix (trimPrefix "*" $one) $other)) (and (hasPrefix "*." $other) (hasSuffix (trimPrefix "*" $other) $one)) }}
{{- $names = append $names ($one | default $other | default "every host") }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $listeners $names }}{{ first $names }}{{ end }}
{{- end }}

{{- /* Fills /models as the pod's own user; what it caches lies in /tmp. */}}
{{- define "paceline.download" -}}
- name: download
  image: {{ .root.Values.model.download.image | default (include "paceline.image" .) }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: {{- toYaml .command | nindent 4 }}
  env:
    - {name: HOME, value: /tmp}
    {{- with .root.Values.model.download.tokenSecretName }}
    - name: HF_TOKEN
      valueFrom: {secretKeyRef: {name: {{ . }}, key: token}}
    {{- end }}
    {{- include "paceline.env" .root.Values.model.download.env | nindent 4 }}
  securityContext: {{- include "paceline.containerSecurity" . | nindent 4 }}
  resources: {{- toYaml .root.Values.model.download.resources | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /models}
    - {name: tmp, mountPath: /tmp}
{{- end }}

{{- /* Names that the chart gives to volumes. */}}
{{- define "paceline.ownVolumes" -}}
models tmp home shm kernels session client-tls client-ca internal-tls api-keys ray
{{- end }}

{{- define "paceline.modelVolume" -}}
- name: models
  {{- if .root.Values.model.download.enabled }}
  emptyDir: {sizeLimit: {{ .size }}}
  {{- else }}
  persistentVolumeClaim:
    claimName: {{ .claim }}
    readOnly: true
  {{- end }}
{{- end }}

{{- /* Name of the Secret for gateway to target; empty: plaintext. */}}
{{- define "paceline.internalTls" -}}
{{- $made := ternary (printf "%s-internal" (include "paceline.name" .)) "" .Values.tls.certManager.internal -}}
{{ .Values.tls.internalSecretName | default $made }}
{{- end }}

{{- /* Name of the Secret that gateways and targets share. */}}
{{- define "paceline.sessionSecret" -}}
{{ .Values.auth.sessionSecretName | default (printf "%s-session" (include "paceline.name" .)) }}
{{- end }}

{{- define "paceline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "paceline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* What pods may reach where egress is bounded: names, pods of the peers' components, and what the values add. */}}
{{- define "paceline.egress" -}}
{{- with .root.Values.networkPolicy.egress }}
{{- if .enabled }}
egress:
  - ports:
      - {port: 53, protocol: UDP}
      - {port: 53, protocol: TCP}
  {{- if $.peers }}
  - to:
      {{- range $.peers }}
      - podSelector:
          matchLabels: {{- include "paceline.selector" (dict "root" $.root "component" .) | nindent 12 }}
      {{- end }}
  {{- end }}
  {{- with .extra }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "paceline.spread" -}}
{{- if .root.Values.topologySpread.enabled }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .root.Values.topologySpread.topologyKey }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "paceline.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{- define "paceline.env" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- /* What the values add to the variables of a container, and where they come from. */}}
{{- define "paceline.givenEnv" -}}
{{- include "paceline.env" .env }}
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "paceline.envFrom" -}}
{{- with .envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "paceline.probes" -}}
startupProbe:
  grpc: {port: {{ .port }}}
  periodSeconds: 5
  failureThreshold: {{ .startup }}
readinessProbe:
  grpc: {port: {{ .port }}}
  periodSeconds: 3
  failureThreshold: 2
livenessProbe:
  grpc: {port: {{ .port }}, service: liveness}
  periodSeconds: 10
  failureThreshold: 3
  {{- /* Who hangs drains nothing; the pod's own grace is for those that do. */}}
  terminationGracePeriodSeconds: 10
{{- end }}
