{{- define "paceline.gatewayArgs" -}}
{{- $bind := include "paceline.bind" . }}
- {{ printf "--grpc=%s:%v" $bind .Values.gateway.port | quote }}
{{- if .Values.gateway.httpPort }}
- {{ printf "--http=%s:%v" $bind .Values.gateway.httpPort | quote }}
- --http-page={{ .Values.gateway.httpPage }}
{{- end }}
- {{ printf "--health=%s:50052" $bind | quote }}
- {{ printf "--metrics=%s:9100" $bind | quote }}
- --watch-dns={{ include "paceline.name" . }}-worker.{{ .Release.Namespace }}.svc:50050
- {{ printf "--tokenizer=%s" .Values.model.path | include "paceline.argument" }}
- {{ printf "--model=%s" .Values.model.name | include "paceline.argument" }}
- --wait-target-s={{ .Values.gateway.waitSeconds }}
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
- {{ printf "--target-tls-name=%s" .Values.tls.internalName | include "paceline.argument" }}
{{- end }}
{{- if .Values.auth.apiKeysSecretName }}
- --tenants=/auth/keys.toml
{{- end }}
{{- end }}
