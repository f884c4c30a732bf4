{{- define "paceline.gatewayArgs" -}}
- --grpc=0.0.0.0:{{ .Values.gateway.port }}
{{- if .Values.gateway.httpPort }}
- --http=0.0.0.0:{{ .Values.gateway.httpPort }}
- --http-page={{ .Values.gateway.httpPage }}
{{- end }}
- --health=0.0.0.0:50052
- --metrics=0.0.0.0:9100
- --watch-dns={{ include "paceline.name" . }}-worker.{{ .Release.Namespace }}.svc:50050
- --tokenizer={{ .Values.model.path }}
- --model={{ .Values.model.name }}
- --drain-grace-s={{ .Values.gateway.graceSeconds }}
# Time for endpoints to forget a pod that leaves.
- --propagation-s={{ .Values.gateway.propagationSeconds }}
{{- if include "paceline.clientTls" . }}
- --tls-cert=/tls/client/tls.crt
- --tls-key=/tls/client/tls.key
{{- end }}
{{- if .Values.tls.clientCASecretName }}
- --tls-ca=/tls/client-ca/ca.crt
{{- end }}
- --target-secret-file=/session/secret
{{- if include "paceline.internalTls" . }}
- --target-tls-cert=/tls/internal/tls.crt
- --target-tls-key=/tls/internal/tls.key
- --target-tls-ca=/tls/internal/ca.crt
- --target-tls-name={{ .Values.tls.internalName }}
{{- end }}
{{- if .Values.auth.apiKeysSecretName }}
- --tenants=/auth/keys.toml
{{- end }}
{{- end }}
