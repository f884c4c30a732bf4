// A client made from the .proto files when the program starts: no generated stubs.
import path from "node:path";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const definition = loader.loadSync("paceline/v1/inference.proto", {
  includeDirs: [path.join(here, "../../proto")],
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { InferenceService } = grpc.loadPackageDefinition(definition).paceline.v1;
const rpc = protobuf.loadSync(path.join(here, "details.proto")).lookup("google.rpc");

const REACH_MS = 1500;

/** A client of the gateway at an address; close() it when done. Ends the program when no gateway answers there. */
export async function connect(address = "127.0.0.1:50051") {
  const client = new InferenceService(address, grpc.credentials.createInsecure());
  const error = await new Promise((resolve) => client.waitForReady(Date.now() + REACH_MS, resolve));
  if (error) {
    console.error(`no gateway answers at ${address}: start one with make up`);
    process.exit(1);
  }
  return client;
}

/** The options of a call that may take so many seconds. */
export function within(seconds) {
  return { deadline: Date.now() + seconds * 1000 };
}

/** What a failed call tells; retryAfterMs is undefined when retrying does not help. */
export function refusal(error) {
  const found = { code: grpc.status[error.code], reason: "", field: "", message: error.details };
  const [trailer] = error.metadata?.get("grpc-status-details-bin") ?? [];
  for (const { typeUrl: type, value } of trailer ? rpc.Status.decode(trailer).details : []) {
    if (type.endsWith("/google.rpc.ErrorInfo")) {
      found.reason = rpc.ErrorInfo.decode(value).reason;
    } else if (type.endsWith("/google.rpc.BadRequest")) {
      found.field = rpc.BadRequest.decode(value).fieldViolations[0].field;
    } else if (type.endsWith("/google.rpc.RetryInfo")) {
      const { seconds, nanos } = rpc.RetryInfo.decode(value).retryDelay;
      found.retryAfterMs = Number(seconds) * 1000 + nanos / 1e6;
    }
  }
  return found;
}

export const { status } = grpc;
