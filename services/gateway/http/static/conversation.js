// One conversation: every message so far is sent again with the next one.
import { Answer } from "./answer.js";
import { element } from "./dom.js";
import { request } from "./request.js";
import { verdict } from "./verdict.js";

const TITLES = { true: "Speculation on", false: "Speculation off" };
const SIDES = { on: [true], off: [false], together: [true, false], "in-turn": [true, false] };

export class Conversation {
  #messages = [];
  #running = null;

  /** Shows turns in a place; `failed` hears of every refusal. */
  constructor(gateway, place, failed) {
    this.gateway = gateway;
    this.place = place;
    this.failed = failed;
  }

  get busy() {
    return this.#running !== null;
  }

  /** Ends what runs, and keeps what has come. */
  stop() {
    this.#running?.abort();
  }

  /** Ends what runs, and begins anew. */
  forget() {
    this.stop();
    this.#running = null;
    this.#messages = [];
    this.place.replaceChildren();
  }

  /** Answers a message; returns what to say of it. */
  async turn(model, text, options) {
    const running = (this.#running = new AbortController());
    const messages = [...this.#messages, { role: "user", content: text }];
    const answers = SIDES[options.mode].map((on) => new Answer(TITLES[on], options.kind === "text"));
    const asked = element("p", { class: options.kind === "text" ? "asked plain" : "asked" }, text);
    const side = element("div", { class: "answers" }, ...answers.map((answer) => answer.node));
    const turn = element("div", { class: "turn" }, asked, side);
    this.place.append(turn);
    const runs = SIDES[options.mode].map((on, index) => () => {
      return this.#answer(answers[index], request(model, messages, options, on), running.signal);
    });
    if (options.mode === "in-turn") for (const run of runs) await run();
    else await Promise.all(runs.map((run) => run()));
    const said = answers.length > 1 ? verdict(...answers, options.mode === "together") : "";
    if (said) turn.append(element("p", { class: "verdict" }, said));
    if (this.#running === running) this.#keep(messages, answers[0].text, options.kind);
    return [...answers.map((answer) => answer.summary), said].join(". ");
  }

  async #answer(answer, asked, signal) {
    try {
      for await (const chunk of this.gateway.stream(asked, signal)) answer.take(chunk);
      answer.close();
    } catch (error) {
      answer.close(signal.aborted ? "" : error.message);
      if (!signal.aborted) this.failed(error);
    }
  }

  #keep(messages, text, kind) {
    this.#running = null;
    if (text && kind === "chat") this.#messages = [...messages, { role: "assistant", content: text }];
  }
}
