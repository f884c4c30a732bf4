{{- /* IP families of a Service; none said: what the cluster gives. */}}
{{- define "paceline.families" -}}
{{- with .Values.gateway.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.gateway.service.ipFamilies }}
ipFamilies: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "paceline.gatewayPorts" -}}
- name: grpc
  port: {{ .root.Values.gateway.port }}
  targetPort: grpc
  {{- if not (include "paceline.clientTls" .root) }}
  appProtocol: kubernetes.io/h2c
  {{- end }}
  {{- with .nodePorts.grpc }}
  nodePort: {{ . }}
  {{- end }}
{{- if .root.Values.gateway.httpPort }}
- name: http
  port: {{ .root.Values.gateway.httpPort }}
  targetPort: http
  {{- with .nodePorts.http }}
  nodePort: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
