{{- define "paceline.pairsPerPod" -}}
{{ max 1 (int .Values.workers.gpusPerPod) }}
{{- end }}

{{- /* Requests that run or wait on the pairs of this release: its namespace is the label that scrapes of pods carry. */}}
{{- define "paceline.demand" -}}
{{- $select := `{namespace=%q,model_name=%q,pair=~"%s-worker-.*"}` -}}
{{- $pairs := printf $select .Release.Namespace .Values.model.name (include "paceline.name" .) -}}
sum(paceline_running_requests{{ $pairs }} + paceline_waiting_requests{{ $pairs }})
{{- end }}

{{- define "paceline.workerResources" -}}
requests: {{- toYaml .Values.workers.resources.requests | nindent 2 }}
limits:
  {{- toYaml .Values.workers.resources.limits | nindent 2 }}
  {{- if gt (int .Values.workers.gpusPerPod) 0 }}
  {{ .Values.workers.gpuResourceName }}: {{ .Values.workers.gpusPerPod }}
  {{- end }}
{{- end }}

{{- /* Settings of a service as flags of the controller; JSON keeps whole numbers whole, lists lose their brackets. */}}
{{- define "paceline.passedOn" -}}
{{- range $name, $value := .settings }}
{{- $text := kindIs "string" $value | ternary $value (toJson $value | trimPrefix "[" | trimSuffix "]") }}
- {{ printf "--%s.%s=%s" $.service ($name | replace "_" "-") $text | quote }}
{{- end }}
{{- end }}

{{- /* The flags that both modes share. */}}
{{- define "paceline.workerArgs" -}}
- --model={{ .Values.model.path }}
- --model-name={{ .Values.model.name }}
{{- if .Values.model.drafterPath }}
- --drafter={{ .Values.model.drafterPath }}
- --proposer=dflash
{{- else }}
- --proposer=ngram
{{- end }}
- --placement={{ if gt (int .Values.workers.gpusPerPod) 0 }}gpu{{ else }}cpu{{ end }}
- --slots={{ .Values.workers.slots }}
- --base-port=50061
- --listen=0.0.0.0:50050
- --health=0.0.0.0:50052
- --metrics=0.0.0.0:9100
- --run-dir=/tmp/paceline
- --drain-s={{ .Values.workers.graceSeconds }}
{{- include "paceline.passedOn" (dict "service" "target" "settings" .Values.workers.target) }}
{{- include "paceline.passedOn" (dict "service" "drafter" "settings" .Values.workers.drafter) }}
- --session-secret-file=/session/secret
{{- if include "paceline.internalTls" . }}
- --tls-cert=/tls/internal/tls.crt
- --tls-key=/tls/internal/tls.key
- --tls-ca=/tls/internal/ca.crt
{{- end }}
{{- end }}

{{- /* The flags of a pod that is a Ray of its own. An address is one pod's at a time and is used again, so the ids of
pairs stay as few as the addresses. */}}
{{- define "paceline.podArgs" -}}
{{- include "paceline.workerArgs" . }}
- --pairs={{ include "paceline.pairsPerPod" . }}
- --host=$(POD_IP)
- --pair-prefix={{ include "paceline.name" . }}-worker-$(POD_IP)-
- --mps={{ .Values.workers.mps }}
{{- end }}

{{- define "paceline.workerEnv" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- {name: HOME, value: /home/paceline}
{{- if .Values.workers.kernelCacheClaim }}
- {name: TRITON_CACHE_DIR, value: /kernels/triton}
{{- end }}
{{- include "paceline.givenEnv" .Values.workers }}
{{- end }}

{{- define "paceline.pairPorts" -}}
{{- range $i := until (int (include "paceline.pairsPerPod" .)) }}
- {name: target-{{ $i }}, containerPort: {{ add 50061 (mul 3 $i) }}}
- {name: t-metrics-{{ $i }}, containerPort: {{ add 50062 (mul 3 $i) }}}
- {name: d-metrics-{{ $i }}, containerPort: {{ add 50063 (mul 3 $i) }}}
{{- end }}
{{- end }}

{{- define "paceline.workerMounts" -}}
- {name: models, mountPath: /models, readOnly: true}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /home/paceline}
- {name: shm, mountPath: /dev/shm}
{{- if .Values.workers.kernelCacheClaim }}
- {name: kernels, mountPath: /kernels}
{{- end }}
{{- with .Values.workers.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
- {name: session, mountPath: /session, readOnly: true}
{{- if include "paceline.internalTls" . }}
- {name: internal-tls, mountPath: /tls/internal, readOnly: true}
{{- end }}
{{- end }}

{{- define "paceline.workerVolumes" -}}
{{- include "paceline.modelVolume" (dict "root" . "claim" .Values.model.existingClaim "size" .Values.model.download.sizeLimit) }}
- {name: tmp, emptyDir: {}}
- {name: home, emptyDir: {}}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.workers.shmSize }}}
{{- with .Values.workers.kernelCacheClaim }}
- name: kernels
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- with .Values.workers.extraVolumes }}
{{ toYaml . }}
{{- end }}
- name: session
  secret: {secretName: {{ include "paceline.sessionSecret" . }}}
{{- with include "paceline.internalTls" . }}
- name: internal-tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}

{{- define "paceline.workerDownload" -}}
{{- if .Values.model.download.enabled }}
initContainers: {{- include "paceline.download" (dict "root" . "component" "worker" "command" .Values.model.download.command) | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The pod of the Deployment: a Ray of its own, started and drained by the controller as PID 1. */}}
{{- define "paceline.workerPod" -}}
{{- include "paceline.pod" (dict "root" . "of" .Values.workers "component" "worker") }}
terminationGracePeriodSeconds: {{ add .Values.workers.graceSeconds 30 }}
{{- include "paceline.workerDownload" . }}
containers:
  - name: worker
    image: {{ include "paceline.image" (dict "root" . "component" "worker") }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      {{- include "paceline.podArgs" . | nindent 6 }}
    env: {{- include "paceline.workerEnv" . | nindent 6 }}
    {{- include "paceline.envFrom" .Values.workers | nindent 4 }}
    ports:
      - {name: fleet, containerPort: 50050}
      - {name: health, containerPort: 50052}
      - {name: metrics, containerPort: 9100}
      {{- include "paceline.pairPorts" . | nindent 6 }}
    {{- include "paceline.probes" (dict "port" 50052 "startup" 366) | nindent 4 }}
    securityContext: {{- include "paceline.containerSecurity" . | nindent 6 }}
    resources: {{- include "paceline.workerResources" . | nindent 6 }}
    volumeMounts: {{- include "paceline.workerMounts" . | nindent 6 }}
volumes: {{- include "paceline.workerVolumes" . | nindent 2 }}
{{- end }}
