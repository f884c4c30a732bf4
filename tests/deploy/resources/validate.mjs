// Reads a JSON list of custom resources from stdin and prints one line for each that its published schema refuses.
import { readFileSync } from "node:fs";
import { Certificate } from "@kubernetes-models/cert-manager/cert-manager.io/v1";
import { BackendTLSPolicy, GRPCRoute, HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";
import { PodMonitor, PrometheusRule, ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";

const kinds = {
  BackendTLSPolicy, Certificate, GRPCRoute, HTTPRoute, PodMonitor, PrometheusRule, ScaledObject, ServiceMonitor,
};
let refused = 0;
for (const resource of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    new kinds[resource.kind](resource).validate();
  } catch (error) {
    refused += 1;
    console.log(`${resource.kind} ${resource.metadata?.name}: ${error.message}`);
  }
}
process.exitCode = refused > 0 ? 1 : 0;
