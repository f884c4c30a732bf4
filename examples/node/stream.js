// Streams one completion: npm install, then node stream.js [ADDRESS] [PROMPT].
import { connect, refusal, within } from "./paceline.js";

const [address, prompt = "def main():"] = process.argv.slice(2);
const client = await connect(address);
const request = { prompt: { text: prompt }, sampling: { temperature: 0.8, seed: "1" }, stopping: { max_tokens: 48 } };
try {
  for await (const { event, delta, final } of client.Generate(request, within(120))) {
    if (event === "delta") {
      process.stdout.write(delta.text);
    } else {
      const { rounds, accepted } = final.speculation ?? { rounds: "0", accepted: "0" };
      console.log(`\n[${final.finish_reason}, seed ${final.seed}]`);
      console.log(`[${final.usage.completion_tokens} tokens in ${rounds} rounds, ${accepted} drafts accepted]`);
    }
  }
} catch (error) {
  const { code, message } = refusal(error);
  console.error(`${code}: ${message}`);
  process.exitCode = 1;
}
client.close();
