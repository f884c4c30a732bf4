// Retries what may be retried: node retry.js [ADDRESS].
//
// Safe to repeat are UNAVAILABLE and RESOURCE_EXHAUSTED before the first token; an idempotency key keeps a repeat from
// running twice. A stream that has begun needs no retry: the gateway itself moves it to another target.
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { connect, refusal, within } from "./paceline.js";

const AGAIN = ["UNAVAILABLE", "RESOURCE_EXHAUSTED"];
const ATTEMPTS = 6;

async function generate(client, request) {
  for (let attempt = 1; ; attempt += 1) {
    let text = "";
    try {
      for await (const { event, delta } of client.Generate(request, within(120))) {
        text += event === "delta" ? delta.text : "";
      }
      return text;
    } catch (error) {
      const { code, reason, retryAfterMs = 100 * 2 ** attempt } = refusal(error);
      if (text || !AGAIN.includes(code) || attempt === ATTEMPTS) {
        throw error;
      }
      console.error(`${code} ${reason}: again in ${(retryAfterMs / 1000).toFixed(1)} s`);
      await pause(retryAfterMs * (1 + Math.random() / 2));
    }
  }
}

const client = await connect(process.argv[2]);
const request = { prompt: { text: "def add(a, b):" }, stopping: { max_tokens: 24 }, idempotency_key: randomUUID() };
console.log(await generate(client, request));
client.close();
