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
{{- $repository := required "image.repository is required: build with `docker build -f deploy/docker/worker.Dockerfile -t REPOSITORY/worker:TAG .` (and gateway.Dockerfile), push, and set image.repository=REPOSITORY" .root.Values.image.repository -}}
{{ $repository }}/{{ .component }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
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
metrics: 9100
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
{{- end }}

{{- define "paceline.download" -}}
- name: download
  image: {{ required "model.download.image is required with model.download.enabled" .Values.model.download.image }}
  command: {{- toYaml .Values.model.download.command | nindent 4 }}
  securityContext: {{- include "paceline.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /models}
    - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "paceline.modelVolume" -}}
- name: models
  {{- if .Values.model.download.enabled }}
  emptyDir: {sizeLimit: {{ .Values.model.download.sizeLimit }}}
  {{- else }}
  persistentVolumeClaim:
    claimName: {{ required "model.existingClaim is required without model.download.enabled" .Values.model.existingClaim }}
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

{{- define "paceline.issuer" -}}
name: {{ required "tls.certManager.issuerRef.name is required with certificates of cert-manager" .Values.tls.certManager.issuerRef.name }}
kind: {{ .Values.tls.certManager.issuerRef.kind }}
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
{{- end }}
