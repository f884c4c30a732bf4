{{- define "paceline.pairsPerPod" -}}
{{ max 1 (mul (int .Values.workers.gpusPerPod) (int .Values.workers.pairsPerGpu)) }}
{{- end }}

{{- /* Requests of this release: those that its pairs run or hold in their queues, or those that its gateways have in hand
where these are more, as while there is no pair. Namespace and pod are the labels that scrapes of pods carry. What follows a name is said whole: a
release may be called as this one and more. */}}
{{- define "paceline.demand" -}}
{{- $name := include "paceline.name" . -}}
{{- $pairs := printf `{namespace=%q,model_name=%q,pair=~"%s-worker-[0-9a-f.:]+-pair-[0-9]+"}` .Release.Namespace .Values.model.name $name -}}
{{- $gateways := printf `{namespace=%q,pod=~"%s-gateway-[a-z0-9]+(-[a-z0-9]+)?"}` .Release.Namespace $name -}}
{{- $named := `label_replace(sum(%s) or vector(0), "at", %q, "", "")` -}}
{{- if .Values.models -}}
{{- /* Gateways hold requests of all models. */ -}}
sum({{ printf "paceline_running_requests%s + paceline_waiting_requests%s" $pairs $pairs }}) or vector(0)
{{- else -}}
max({{ printf $named (printf "paceline_running_requests%s + paceline_waiting_requests%s" $pairs $pairs) "pairs" }} or {{ printf $named (print "paceline_gateway_inflight_requests" $gateways) "gateways" }})
{{- end }}
{{- end }}

{{- /* The health service by which a gateway is ready: with no pair its pods must stay reachable where requests that wait
in them are what brings the first one. */}}
{{- define "paceline.gatewayReady" -}}
{{- with .Values.workers.autoscaling }}{{ if and .enabled (eq (int .minReplicas) 0) }}liveness{{ end }}{{ end -}}
{{- end }}

{{- define "paceline.workerResources" -}}
{{- $limits := deepCopy (.Values.workers.resources.limits | default dict) }}
{{- if and (gt (int .Values.workers.gpusPerPod) 0) (not .Values.workers.resourceClaims) }}
{{- $_ := set $limits .Values.workers.gpuResourceName .Values.workers.gpusPerPod }}
{{- end }}
{{- with .Values.workers.resources.requests }}
requests: {{- toYaml . | nindent 2 }}
{{- end }}
limits: {{- toYaml $limits | nindent 2 }}
{{- with .Values.workers.resourceClaims }}
claims:
  {{- range . }}
  - {{- pick . "name" "request" | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Settings of a service as flags of the controller; JSON keeps whole numbers whole, lists lose their brackets. */}}
{{- define "paceline.passedOn" -}}
{{- range $name, $value := .settings }}
{{- $text := kindIs "string" $value | ternary $value (toJson $value | trimPrefix "[" | trimSuffix "]") }}
- {{ printf "--%s.%s=%s" $.service ($name | replace "_" "-") $text | include "paceline.argument" }}
{{- end }}
{{- end }}

{{- /* The flags that both modes share. */}}
{{- define "paceline.workerArgs" -}}
- {{ printf "--model=%s" .Values.model.path | include "paceline.argument" }}
- {{ printf "--model-name=%s" .Values.model.name | include "paceline.argument" }}
{{- if .Values.model.drafterPath }}
- {{ printf "--drafter=%s" .Values.model.drafterPath | include "paceline.argument" }}
- --proposer=dflash
{{- else }}
- --proposer=ngram
{{- end }}
- --placement={{ if gt (int .Values.workers.gpusPerPod) 0 }}gpu{{ else }}cpu{{ end }}
- --slots={{ .Values.workers.slots }}
- --base-port=50061
{{- $bind := include "paceline.bind" . }}
- {{ printf "--listen=%s:50050" $bind | quote }}
- {{ printf "--health=%s:50052" $bind | quote }}
- {{ printf "--metrics=%s:9100" $bind | quote }}
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
- --pairs-per-gpu={{ .Values.workers.pairsPerGpu }}
- --host=$(POD_IP)
- --pair-prefix={{ include "paceline.name" . }}-worker-$(POD_IP)-
- --mps={{ .Values.workers.mps }}
{{- end }}

{{- define "paceline.workerEnv" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- {name: HOME, value: /home/paceline}
{{- /* Who asks for the user's name asks this first: an id that the cluster chose has none. */}}
- {name: USER, value: paceline}
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
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.workers.shmSize | quote }}}
{{- with .Values.workers.kernelCacheClaim }}
- name: kernels
  persistentVolumeClaim: {claimName: {{ quote . }}}
{{- end }}
{{- with .Values.workers.extraVolumes }}
{{ toYaml . }}
{{- end }}
- name: session
  secret: {secretName: {{ include "paceline.sessionSecret" . | quote }}}
{{- with include "paceline.internalTls" . }}
- name: internal-tls
  secret: {secretName: {{ quote . }}}
{{- end }}
{{- end }}

{{- define "paceline.workerDownload" -}}
{{- include "paceline.initContainers" (dict "root" . "of" .Values.workers "component" "worker" "command" .Values.model.download.command) }}
{{- end }}

{{- /* The pod of the Deployment: a Ray of its own, started and drained by the controller as PID 1. */}}
{{- define "paceline.workerPod" -}}
{{- include "paceline.pod" (dict "root" . "of" .Values.workers "component" (include "paceline.workers" .)) }}
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
    securityContext: {{- include "paceline.containerSecurity" (dict "root" .) | nindent 6 }}
    resources: {{- include "paceline.workerResources" . | nindent 6 }}
    volumeMounts: {{- include "paceline.workerMounts" . | nindent 6 }}
  {{- if .Values.inferencePool.enabled }}
  {{- include "paceline.poolGateway" . | nindent 2 }}
  {{- end }}
  {{- with .Values.workers.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes: {{- include "paceline.workerVolumes" . | nindent 2 }}
  {{- if .Values.inferencePool.enabled }}
  {{- include "paceline.clientVolumes" . | nindent 2 }}
  {{- end }}
{{- end }}
