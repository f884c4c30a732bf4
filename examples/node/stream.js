// Streams one completion: npm install, then node stream.js [ADDRESS] [PROMPT]. Reads the .proto files directly: no stubs.
import path from "node:path";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [address = "127.0.0.1:50051", prompt = "def main():"] = process.argv.slice(2);
const protos = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../proto");
const definition = loader.loadSync("paceline/v1/inference.proto", {
  includeDirs: [protos],
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { InferenceService } = grpc.loadPackageDefinition(definition).paceline.v1;
const client = new InferenceService(address, grpc.credentials.createInsecure());

const stream = client.Generate(
  { prompt: { text: prompt }, sampling: { temperature: 0.8, seed: "1" }, stopping: { max_tokens: 48 } },
  { deadline: Date.now() + 120_000 },
);
stream.on("data", ({ event, delta, final }) => {
  if (event === "delta") {
    process.stdout.write(delta.text);
  } else {
    const { rounds, accepted } = final.speculation ?? { rounds: "0", accepted: "0" };
    console.log(`\n[${final.finish_reason}: ${final.usage.completion_tokens} tokens, ${rounds} rounds, ${accepted} drafts accepted]`);
  }
});
stream.on("error", ({ code, details }) => {
  console.error(`${grpc.status[code]}: ${details}`);
  process.exitCode = 1;
});
stream.on("end", () => client.close());
