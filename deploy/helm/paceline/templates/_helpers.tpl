{{- /* Every template begins with this. Values of an earlier chart (helm upgrade --reuse-values) lack what has come since
and hold what has gone: the former is filled in from this chart's own, the latter is read as what it is called now. */}}
{{- define "paceline.values" -}}
{{- include "paceline.fill" (dict "values" .Values "own" (.Files.Get "files/values.yaml" | fromYaml)) }}
{{- if eq .Values.workers.mode "statefulset" }}{{ $_ := set .Values.workers "mode" "deployment" }}{{ end }}
{{- if not (hasKey .Values "each") }}{{ include "paceline.each" . }}{{ end }}
{{- end }}

{{- /* Makes .Values.each: the workers of every model, `component` and what their templates take for `.`. A further model has the values of
the first one but for what it states itself. */}}
{{- define "paceline.each" -}}
{{- $each := list (dict "component" "worker" "root" .) }}
{{- range $model := .Values.models }}
{{- $values := deepCopy (omit $.Values "each") }}
{{- $_ := set $values "model" (mergeOverwrite (deepCopy $.Values.model) (omit $model "id" "workers")) }}
{{- $_ := set $values "workers" (mergeOverwrite (deepCopy $.Values.workers) (deepCopy ($model.workers | default dict))) }}
{{- $component := printf "worker-%s" $model.id }}
{{- $_ := set $values "each" list }}
{{- $_ := set $values "component" $component }}
{{- $root := dict "Values" $values "Release" $.Release "Chart" $.Chart "Files" $.Files "Capabilities" $.Capabilities "Template" $.Template }}
{{- $each = append $each (dict "component" $component "root" $root) }}
{{- end }}
{{- $_ := set .Values "each" $each }}
{{- end }}

{{- /* The component of one model's workers. */}}
{{- define "paceline.workers" -}}
{{ .Values.component | default "worker" }}
{{- end }}

{{- /* What a value is not, because nobody knew of it; lists of resources stay as they are given, also where one was taken
away with null. */}}
{{- define "paceline.fill" -}}
{{- range $name, $own := .own }}
{{- if has $name (list "requests" "limits") }}
{{- else if not (hasKey $.values $name) }}{{ $_ := set $.values $name $own }}
{{- else if and (kindIs "map" $own) (kindIs "map" (index $.values $name)) }}
{{- include "paceline.fill" (dict "values" (index $.values $name) "own" $own) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the names of all objects begin with: the release's own name where a Service may be called so and every name
made of it has at most 63 characters, else one with its digest, so that no two releases share it. */}}
{{- define "paceline.name" -}}
{{- $given := .Values.fullnameOverride | default .Release.Name -}}
{{- if and (le (len $given) 40) (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $given) -}}
{{ $given }}
{{- else -}}
paceline-{{ regexReplaceAll "[^a-z0-9]+" $given "-" | trunc 22 | trimAll "-" }}-{{ sha256sum $given | trunc 8 }}
{{- end -}}
{{- end }}

{{- define "paceline.labels" -}}
app.kubernetes.io/name: paceline
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "paceline.selector" -}}
app.kubernetes.io/name: paceline
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Name, labels and annotations of an object. What the chart writes stands before what is given for one kind of objects,
and that before commonLabels and commonAnnotations. */}}
{{- define "paceline.metadata" -}}
name: {{ .name | default (printf "%s%s" (include "paceline.name" .root) .suffix) | quote }}
labels:
  {{- merge (include "paceline.labels" .root | fromYaml) (.own | default dict) (.labels | default dict) .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge dict (.annotations | default dict) .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* One argument of a container, whatever it holds: Kubernetes would take $(NAME) for a variable. */}}
{{- define "paceline.argument" -}}
{{ . | replace "$(" "$$(" | toJson }}
{{- end }}

{{- /* Where a listener binds. */}}
{{- define "paceline.bind" -}}
{{ eq .Values.bindAddress "::" | ternary "[::]" .Values.bindAddress }}
{{- end }}

{{- define "paceline.image" -}}
{{- $component := eq .component "gateway" | ternary "gateway" "worker" -}}
{{- $digest := index .root.Values.image.digests $component -}}
{{- $version := empty $digest | ternary (print ":" (.root.Values.image.tag | default .root.Chart.AppVersion)) (print "@" $digest) -}}
{{ printf "%s/%s%s" .root.Values.image.repository $component $version | quote }}
{{- end }}

{{- define "paceline.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "paceline.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* The component whose pods announce pairs. */}}
{{- define "paceline.controller" -}}
{{ eq .Values.workers.mode "raycluster" | ternary "head" (include "paceline.workers" .) }}
{{- end }}

{{- /* The components that have pods. */}}
{{- define "paceline.components" -}}
gateway{{ range .Values.each }} {{ .component }}{{ end }}{{ if eq .Values.workers.mode "raycluster" }} head{{ end }}
{{- end }}

{{- /* Ports of a component that serve metrics, by name. */}}
{{- define "paceline.metricsPorts" -}}
{{- if or (eq .component "gateway") (eq .component (include "paceline.controller" .root)) }}
{{- /* KubeRay adds a port of its own named metrics to the head. */}}
{{ eq .component "head" | ternary "c-metrics" "metrics" }}: 9100
{{- end }}
{{- if hasPrefix "worker" .component }}
{{- range $i := until (int (include "paceline.pairsPerPod" .root)) }}
t-metrics-{{ $i }}: {{ add 50062 (mul 3 $i) }}
d-metrics-{{ $i }}: {{ add 50063 (mul 3 $i) }}
{{- end }}
{{- if .root.Values.inferencePool.enabled }}
g-metrics: 9101
{{- end }}
{{- end }}
{{- end }}

{{- /* What pods of all kinds share. Service links are off: a Service named "paceline" would otherwise become variables
PACELINE_*, which the services take for settings. */}}
{{- define "paceline.pod" -}}
serviceAccountName: {{ include "paceline.serviceAccount" .root | quote }}
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
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .of.resourceClaims }}
resourceClaims:
  {{- range . }}
  - {{- omit . "request" | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .of.podSpec }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Fields of a Deployment: those that are given, each whole, in the place of the chart's own. */}}
{{- define "paceline.deployment" -}}
{{- $fields := deepCopy .given }}
{{- range $name, $value := .own }}
{{- if not (hasKey $fields $name) }}{{ $_ := set $fields $name $value }}{{ end }}
{{- end }}
{{- toYaml $fields }}
{{- end }}

{{- /* What runs before a pod's containers: what is given, then the download, which may need a proxy among it. */}}
{{- define "paceline.initContainers" -}}
{{- if or .of.extraInitContainers .root.Values.model.download.enabled }}
initContainers:
{{- with .of.extraInitContainers }}
{{- toYaml . | nindent 2 }}
{{- end }}
{{- if .root.Values.model.download.enabled }}
{{- include "paceline.download" . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Labels of a pod: nothing that a new version of the chart changes, so that it alone replaces no pod. */}}
{{- define "paceline.podMetadata" -}}
labels:
  {{- merge (include "paceline.selector" . | fromYaml) (.of.podLabels | default dict) .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge dict (.of.podAnnotations | default dict) .root.Values.commonAnnotations }}
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
  image: {{ with .root.Values.model.download.image }}{{ quote . }}{{ else }}{{ include "paceline.image" . }}{{ end }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: {{- toYaml .command | nindent 4 }}
  env:
    - {name: HOME, value: /tmp}
    {{- with .root.Values.model.download.tokenSecretName }}
    - name: HF_TOKEN
      valueFrom: {secretKeyRef: {name: {{ quote . }}, key: token}}
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
  emptyDir: {sizeLimit: {{ quote .size }}}
  {{- else }}
  persistentVolumeClaim:
    claimName: {{ quote .claim }}
    readOnly: true
  {{- end }}
{{- end }}

{{- /* Name of the Secret for gateway to target; empty: plaintext. */}}
{{- define "paceline.internalTls" -}}
{{- $made := ternary (printf "%s-internal" (include "paceline.name" .)) "" .Values.tls.certManager.internal -}}
{{ .Values.tls.internalSecretName | default $made }}
{{- end }}

{{- /* What the chart's own Secret holds: what it held before, or something new where there is none. Empty where the Secret
is somebody else's, and where no cluster can be asked (helm template, Argo CD): each rendering would make another one, so the
manifests then hold none. Every namespace has an account called default; without one this namespace is still to be made,
and who makes namespaces may look at them. */}}
{{- define "paceline.session" -}}
{{- if not .Values.auth.sessionSecretName -}}
{{- $kept := lookup "v1" "Secret" .Release.Namespace (include "paceline.sessionSecret" .) -}}
{{- if $kept -}}
{{ index $kept.data "secret" }}
{{- else if or (lookup "v1" "ServiceAccount" .Release.Namespace "default") (lookup "v1" "Namespace" "" "default") -}}
{{ randAlphaNum 64 | b64enc }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Name of the Secret that gateways and targets share. */}}
{{- define "paceline.sessionSecret" -}}
{{ .Values.auth.sessionSecretName | default (printf "%s-session" (include "paceline.name" .)) }}
{{- end }}

{{- /* OpenShift gives every namespace ids of its own and refuses others, so there the chart names none. */}}
{{- define "paceline.podSecurity" -}}
{{- $ids := .root.Capabilities.APIVersions.Has "security.openshift.io/v1" | ternary dict (dict "runAsUser" 10001 "runAsGroup" 10001 "fsGroup" 10001) -}}
{{- $own := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- include "paceline.given" (dict "given" .root.Values.podSecurityContext "own" (merge $own $ids)) }}
{{- end }}

{{- define "paceline.containerSecurity" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- include "paceline.given" (dict "given" .root.Values.containerSecurityContext "own" $own) }}
{{- end }}

{{- /* The chart's own fields under those that are given; one that is given as null is left out. */}}
{{- define "paceline.given" -}}
{{- $fields := dict -}}
{{- range $name, $value := .own }}{{ if not (hasKey $.given $name) }}{{ $_ := set $fields $name $value }}{{ end }}{{ end -}}
{{- range $name, $value := .given }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $fields $name $value }}{{ end }}{{ end -}}
{{ toYaml $fields }}
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
  - maxSkew: {{ .root.Values.topologySpread.maxSkew }}
    topologyKey: {{ .root.Values.topologySpread.topologyKey | quote }}
    whenUnsatisfiable: {{ .root.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels: {{- include "paceline.selector" . | nindent 8 }}
    {{- /* Pods that an upgrade is about to remove would stand in the way of those that take their place. */}}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}

{{- /* Helm holds every number of a file as a float, of which quote alone makes 1e+06. */}}
{{- define "paceline.env" -}}
{{- range $name, $value := . }}
- name: {{ $name | quote }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
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

{{- /* Started and ready are what the pod says of itself, or of the health service that is named. */}}
{{- define "paceline.probes" -}}
startupProbe:
  grpc: {port: {{ .port }}{{ with .started }}, service: {{ . }}{{ end }}}
  periodSeconds: 5
  failureThreshold: {{ .startup }}
readinessProbe:
  grpc: {port: {{ .port }}{{ with .ready }}, service: {{ . }}{{ end }}}
  periodSeconds: 3
  failureThreshold: 2
livenessProbe:
  grpc: {port: {{ .port }}, service: liveness}
  periodSeconds: 10
  failureThreshold: 3
  {{- /* Who hangs drains nothing; the pod's own grace is for those that do. */}}
  terminationGracePeriodSeconds: 10
{{- end }}
