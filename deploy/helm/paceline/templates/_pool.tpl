{{- /* The gateway of a worker's pod, where an InferencePool is made of them. It has the flags of every gateway but where it
listens: ports of the pod's controller are taken. */}}
{{- define "paceline.poolGateway" -}}
{{- $bind := include "paceline.bind" . }}
- name: gateway
  image: {{ include "paceline.image" (dict "root" . "component" "gateway") }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - --grpc=
    - {{ printf "--http=%s:%v" $bind .Values.inferencePool.port | quote }}
    - --http-page=false
    - {{ printf "--health=%s:50152" $bind | quote }}
    - {{ printf "--metrics=%s:9101" $bind | quote }}
    - --own-pairs={{ include "paceline.name" . }}-worker-$(POD_IP)-
    {{- range include "paceline.gatewayArgs" . | fromYamlArray }}
    {{- if not (regexMatch "^--(grpc|http|http-page|health|metrics)=" .) }}
    - {{ toJson . }}
    {{- end }}
    {{- end }}
  env:
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    - {name: HOME, value: /tmp}
    - {name: USER, value: paceline}
    {{- include "paceline.givenEnv" .Values.gateway | nindent 4 }}
  {{- include "paceline.envFrom" .Values.gateway | nindent 2 }}
  ports:
    - {name: pool, containerPort: {{ .Values.inferencePool.port }}}
    - {name: g-health, containerPort: 50152}
    - {name: g-metrics, containerPort: 9101}
  {{- include "paceline.probes" (dict "port" 50152 "startup" 60 "started" "liveness") | nindent 2 }}
  securityContext: {{- include "paceline.containerSecurity" (dict "root" .) | nindent 4 }}
  resources: {{- toYaml .Values.inferencePool.resources | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /models, readOnly: true}
    - {name: tmp, mountPath: /tmp}
    - {name: session, mountPath: /session, readOnly: true}
    {{- include "paceline.gatewayMounts" . | nindent 4 }}
{{- end }}
