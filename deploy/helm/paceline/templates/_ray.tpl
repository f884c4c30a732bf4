{{- /* Image, variables and security of a container of the RayCluster. All containers share one token. */}}
{{- define "paceline.rayContainer" -}}
image: {{ include "paceline.image" (dict "root" . "component" "worker") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "paceline.containerSecurity" (dict "root" .) | nindent 2 }}
{{- include "paceline.envFrom" .Values.workers }}
env:
  {{- include "paceline.workerEnv" . | nindent 2 }}
  - {name: PYTHONPATH, value: /app}
  - {name: RAY_AUTH_MODE, value: token}
  - {name: RAY_memory_monitor_refresh_ms, value: "0"}
  - {name: RAY_worker_oom_score_adjustment, value: "0"}
  - {name: RAY_task_events_report_interval_ms, value: "0"}
  - name: RAY_AUTH_TOKEN
    valueFrom:
      secretKeyRef:
        name: {{ .Values.workers.raycluster.tokenSecretName | quote }}
        key: token
{{- end }}

{{- /* Probes of our own: those that KubeRay would add need Ray's dashboard and wget, which the image lacks. */}}
{{- define "paceline.rayProbes" -}}
startupProbe:
  tcpSocket: {port: {{ . }}}
  periodSeconds: 5
  failureThreshold: 60
readinessProbe:
  tcpSocket: {port: {{ . }}}
  periodSeconds: 5
livenessProbe:
  tcpSocket: {port: {{ . }}}
  periodSeconds: 10
{{- end }}

{{- /* /tmp/ray is mounted here, because the operator would mount a volume there in one of the head's two containers. */}}
{{- define "paceline.rayMounts" -}}
{{- include "paceline.workerMounts" . }}
- {name: ray, mountPath: /tmp/ray}
{{- end }}

{{- define "paceline.rayVolumes" -}}
{{- include "paceline.workerVolumes" . }}
- {name: ray, emptyDir: {}}
{{- end }}

{{- define "paceline.rayLeave" -}}
preStop:
  exec:
    command: [python, -m, deploy.cluster.leave, /tmp/paceline, {{ .Values.workers.graceSeconds | quote }}]
{{- end }}

{{- /* Peers of a NetworkPolicy: Ray's nodes talk to one another on ports of their choice. */}}
{{- define "paceline.rayPeers" -}}
{{- range $component := list "head" "worker" }}
- podSelector:
    matchLabels: {{- include "paceline.selector" (dict "root" $ "component" $component) | nindent 6 }}
{{- end }}
{{- end }}
