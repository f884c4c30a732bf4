// Short runs that are repeated before a ratio is claimed.
import { Pace } from "./pace.js";
import { added } from "./request.js";
import { ROUNDS, SHORT, faster } from "./verdict.js";

/** Runs with speculation and without, in turn and in changing order; says what they took, nothing where one failed. */
export async function measured(gateway, asked, signal) {
  const runs = [];
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      const run = {};
      for (const on of round % 2 ? [true, false] : [false, true]) {
        run[on ? "on" : "off"] = await paced(gateway, asked(on, { short: SHORT }), signal);
      }
      runs.push(run);
    }
  } catch {
    return "";
  }
  return faster(runs);
}

async function paced(gateway, asked, signal) {
  const pace = new Pace();
  for await (const chunk of gateway.stream(asked, signal)) pace.add(added(chunk).tokens, performance.now());
  return pace;
}
