// Stops a stream in the middle: node cancel.js [ADDRESS]. Cancelling frees the request's memory within two rounds.
import { connect, status, within } from "./paceline.js";

const ENOUGH = 16;
const client = await connect(process.argv[2]);
const stream = client.Generate(
  { prompt: { text: "import os" }, stopping: { max_tokens: 400, ignore_eos: true } },
  within(120),
);
let received = 0;
try {
  for await (const { event, delta } of stream) {
    received += event === "delta" ? delta.token_ids.length : 0;
    if (received >= ENOUGH) {
      stream.cancel();
    }
  }
} catch (error) {
  if (error.code !== status.CANCELLED) {
    throw error;
  }
}
console.log(`cancelled after ${received} tokens`);
client.close();
