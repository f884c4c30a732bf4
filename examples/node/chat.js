// Talks in turns: node chat.js [ADDRESS]; an empty line ends it.
import readline from "node:readline";
import { connect, within } from "./paceline.js";

const client = await connect(process.argv[2]);
const messages = [];
for await (const line of readline.createInterface({ input: process.stdin })) {
  if (line.trim() === "") {
    break;
  }
  messages.push({ role: "user", content: line.trim() });
  const request = { prompt: { chat: { messages } }, sampling: { temperature: 0.7, top_p: 0.9 }, stopping: { max_tokens: 64 } };
  let answer = "";
  for await (const { event, delta } of client.Generate(request, within(120))) {
    if (event === "delta") {
      process.stdout.write(delta.text);
      answer += delta.text;
    }
  }
  console.log();
  messages.push({ role: "assistant", content: answer });
}
client.close();
