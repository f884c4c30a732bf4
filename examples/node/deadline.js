// Takes what fits into a time: node deadline.js [ADDRESS] [SECONDS].
//
// The field `timeout` ends the stream in good order with the text so far and FINISH_REASON_DEADLINE. The call's own
// deadline is the last resort: it ends it with DEADLINE_EXCEEDED, so let it be the longer of the two.
import { connect, status, within } from "./paceline.js";

const [address, seconds = "0.5"] = process.argv.slice(2);
const whole = Math.floor(Number(seconds));
const client = await connect(address);
const request = {
  prompt: { text: "class Node:" },
  stopping: { max_tokens: 1000, ignore_eos: true },
  timeout: { seconds: String(whole), nanos: Math.round((Number(seconds) - whole) * 1e9) },
};
let tokens = 0;
try {
  for await (const { event, delta, final } of client.Generate(request, within(Number(seconds) + 5))) {
    if (event === "delta") {
      tokens += delta.token_ids.length;
    } else {
      console.log(`${final.finish_reason} after ${tokens} tokens`);
    }
  }
} catch (error) {
  if (error.code !== status.DEADLINE_EXCEEDED) {
    throw error;
  }
  console.log("no token came in time");
}
client.close();
