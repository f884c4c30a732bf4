// Reads errors: node errors.js [ADDRESS].
//
// Every refusal is a gRPC status with google.rpc details: ErrorInfo.reason is stable and meant for programs, the message
// is for people, BadRequest names the field, RetryInfo tells when the same call may succeed.
import { connect, refusal, within } from "./paceline.js";

const prompt = { text: "x = 1" };
const BAD = {
  "temperature out of range": { prompt, sampling: { temperature: 9 } },
  "empty prompt": { prompt: { text: "" } },
  "unknown model": { prompt, model: "no-such-model" },
  "option not built": { prompt, constraint: "[0-9]+" },
};
const client = await connect(process.argv[2]);
for (const [name, request] of Object.entries(BAD)) {
  try {
    for await (const _ of client.Generate(request, within(60)));
  } catch (error) {
    const { code, reason, field, message } = refusal(error);
    console.log(`${name}: ${code} ${reason} field=${field || "-"}: ${message}`);
  }
}
client.close();
