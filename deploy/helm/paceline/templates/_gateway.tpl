{{- define "paceline.gatewayArgs" -}}
{{- $bind := include "paceline.bind" . }}
- {{ printf "--grpc=%s:%v" $bind .Values.gateway.port | quote }}
{{- if .Values.gateway.httpPort }}
- {{ printf "--http=%s:%v" $bind .Values.gateway.httpPort | quote }}
- --http-page={{ .Values.gateway.httpPage }}
{{- end }}
- {{ printf "--health=%s:50052" $bind | quote }}
- {{ printf "--metrics=%s:9100" $bind | quote }}
{{- $fleets := list }}
{{- range .Values.each }}{{ $fleets = append $fleets (printf "%s-%s.%s.svc:50050" (include "paceline.name" $) .component $.Release.Namespace) }}{{ end }}
- --watch-dns={{ join "," $fleets }}
{{- if .Values.models }}
{{- $served := list }}
{{- range .Values.each }}{{ with .root.Values.model }}{{ $served = append $served (printf "%s=%s" .name .path) }}{{ end }}{{ end }}
- {{ printf "--models=%s" (join "," $served) | include "paceline.argument" }}
{{- else }}
- {{ printf "--tokenizer=%s" .Values.model.path | include "paceline.argument" }}
- {{ printf "--model=%s" .Values.model.name | include "paceline.argument" }}
{{- end }}
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

{{- /* What a gateway mounts beside models, its session and /tmp. */}}
{{- define "paceline.gatewayMounts" -}}
{{- if include "paceline.clientTls" . }}
- {name: client-tls, mountPath: /tls/client, readOnly: true}
{{- end }}
{{- if .Values.tls.clientCASecretName }}
- {name: client-ca, mountPath: /tls/client-ca, readOnly: true}
{{- end }}
{{- if include "paceline.internalTls" . }}
- {name: internal-tls, mountPath: /tls/internal, readOnly: true}
{{- end }}
{{- if .Values.auth.apiKeysSecretName }}
- {name: api-keys, mountPath: /auth, readOnly: true}
{{- end }}
{{- end }}

{{- /* Volumes of whoever serves clients. */}}
{{- define "paceline.clientVolumes" -}}
{{- if include "paceline.clientTls" . }}
- name: client-tls
  secret: {secretName: {{ .Values.tls.secretName | default (printf "%s-client" (include "paceline.name" .)) | quote }}}
{{- end }}
{{- if .Values.tls.clientCASecretName }}
- name: client-ca
  secret: {secretName: {{ .Values.tls.clientCASecretName | quote }}}
{{- end }}
{{- if .Values.auth.apiKeysSecretName }}
# A folder, so that a changed Secret reaches the file that the gateway follows.
- name: api-keys
  secret: {secretName: {{ .Values.auth.apiKeysSecretName | quote }}}
{{- end }}
{{- end }}
