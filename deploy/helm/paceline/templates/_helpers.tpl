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

{{- define "paceline.workerPod" -}}
{{- $pairs := int (max 1 (int .Values.workers.gpusPerPod)) -}}
serviceAccountName: {{ include "paceline.serviceAccount" . }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ add .Values.workers.graceSeconds 30 }}
securityContext: {{- include "paceline.podSecurity" . | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "paceline.spread" (dict "root" . "component" "worker") }}
{{- with .Values.workers.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.workers.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.workers.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.model.download.enabled }}
initContainers:
  - name: download
    image: {{ required "model.download.image is required with model.download.enabled" .Values.model.download.image }}
    command: {{- toYaml .Values.model.download.command | nindent 6 }}
    securityContext: {{- include "paceline.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - {name: models, mountPath: /models}
      - {name: tmp, mountPath: /tmp}
{{- end }}
containers:
  - name: worker
    image: {{ include "paceline.image" (dict "root" . "component" "worker") }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      - --model={{ .Values.model.path }}
      - --model-name={{ .Values.model.name }}
      {{- if .Values.model.drafterPath }}
      - --drafter={{ .Values.model.drafterPath }}
      - --proposer=dflash
      {{- else }}
      - --proposer=ngram
      {{- end }}
      - --pairs={{ $pairs }}
      - --placement={{ if gt (int .Values.workers.gpusPerPod) 0 }}gpu{{ else }}cpu{{ end }}
      - --slots={{ .Values.workers.slots }}
      - --pair-prefix=$(POD_NAME)-
      - --host=$(POD_IP)
      - --base-port=50061
      - --listen=0.0.0.0:50050
      - --health=0.0.0.0:50052
      - --metrics=0.0.0.0:9100
      - --run-dir=/tmp/paceline
      {{- if .Values.workers.mps }}
      - --mps=true
      {{- end }}
      - --drain-s={{ .Values.workers.graceSeconds }}
      {{- if .Values.tls.internalSecretName }}
      - --tls-cert=/tls/internal/tls.crt
      - --tls-key=/tls/internal/tls.key
      - --tls-ca=/tls/internal/ca.crt
      {{- end }}
    env:
      - name: POD_IP
        valueFrom: {fieldRef: {fieldPath: status.podIP}}
      - name: POD_NAME
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
      - {name: HOME, value: /home/paceline}
      {{- if .Values.workers.mps }}
      - {name: CUDA_MPS_PIPE_DIRECTORY, value: /tmp/mps}
      - {name: CUDA_MPS_LOG_DIRECTORY, value: /tmp/mps-log}
      {{- end }}
      {{- include "paceline.env" .Values.workers.env | nindent 6 }}
    ports:
      - {name: fleet, containerPort: 50050}
      - {name: health, containerPort: 50052}
      - {name: metrics, containerPort: 9100}
      {{- range $i := until $pairs }}
      - {name: target-{{ $i }}, containerPort: {{ add 50061 (mul 3 $i) }}}
      - {name: t-metrics-{{ $i }}, containerPort: {{ add 50062 (mul 3 $i) }}}
      - {name: d-metrics-{{ $i }}, containerPort: {{ add 50063 (mul 3 $i) }}}
      {{- end }}
    {{- include "paceline.probes" (dict "port" 50052 "startup" 240) | nindent 4 }}
    securityContext: {{- include "paceline.containerSecurity" . | nindent 6 }}
    resources:
      requests: {{- toYaml .Values.workers.resources.requests | nindent 8 }}
      limits:
        {{- toYaml .Values.workers.resources.limits | nindent 8 }}
        {{- if gt (int .Values.workers.gpusPerPod) 0 }}
        nvidia.com/gpu: {{ .Values.workers.gpusPerPod }}
        {{- end }}
    volumeMounts:
      - {name: models, mountPath: /models{{ if not .Values.model.download.enabled }}, readOnly: true{{ end }}}
      - {name: tmp, mountPath: /tmp}
      - {name: home, mountPath: /home/paceline}
      - {name: shm, mountPath: /dev/shm}
      {{- if .Values.tls.internalSecretName }}
      - {name: internal-tls, mountPath: /tls/internal, readOnly: true}
      {{- end }}
volumes:
  - name: models
    {{- if .Values.model.download.enabled }}
    emptyDir: {sizeLimit: {{ .Values.model.download.sizeLimit }}}
    {{- else }}
    persistentVolumeClaim:
      claimName: {{ required "model.existingClaim is required without model.download.enabled" .Values.model.existingClaim }}
      readOnly: true
    {{- end }}
  - {name: tmp, emptyDir: {}}
  - {name: home, emptyDir: {}}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ .Values.workers.shmSize }}}
  {{- if .Values.tls.internalSecretName }}
  - name: internal-tls
    secret: {secretName: {{ .Values.tls.internalSecretName }}}
  {{- end }}
{{- end }}
