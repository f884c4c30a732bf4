// One conversation: every message so far is sent again with the next one.
import { Answer } from "./answer.js";
import { element } from "./dom.js";
import { measured } from "./measure.js";
import { request } from "./request.js";
import { messagesOf, titleOf } from "./store.js";
import { compared } from "./verdict.js";

const TITLES = { true: "Speculation on", false: "Speculation off" };
const SIDES = { on: [true], off: [false], together: [true, false], "in-turn": [true, false] };

export class Conversation {
  id = crypto.randomUUID?.() ?? String(Math.random());
  model = "";
  #turns = [];
  #running = null;

  /** Shows turns in a place; `failed` hears of every refusal, `changed` of what is worth keeping. */
  constructor(gateway, place, { failed, changed, edit, again }) {
    this.gateway = gateway;
    this.place = place;
    this.calls = { failed, changed, edit, again };
  }

  get busy() {
    return this.#running !== null;
  }

  /** What is worth keeping; null while there is nothing. */
  get kept() {
    if (!this.#turns.length) return null;
    const turns = this.#turns.map(({ node, ...turn }) => turn);
    return { id: this.id, title: titleOf(turns), at: new Date().toISOString(), model: this.model, turns };
  }

  /** Ends what runs, and keeps what has come. */
  stop() {
    this.#running?.abort();
  }

  /** Ends what runs, and begins anew, or with a conversation that was kept. */
  open(kept = null) {
    this.stop();
    this.#running = null;
    this.id = kept?.id ?? crypto.randomUUID?.() ?? String(Math.random());
    this.model = kept?.model ?? "";
    this.#turns = [];
    this.place.replaceChildren();
    for (const turn of kept?.turns ?? []) {
      const answers = turn.answers.map((one) => Answer.restored(one, turn.kind === "text"));
      this.#turns.push({ ...turn, node: this.#show(turn, answers) });
    }
  }

  /** Forgets a turn and what follows it; returns its message. */
  cut(turn) {
    const at = this.#turns.findIndex(({ node }) => node === turn);
    for (const { node } of this.#turns.slice(at)) node.remove();
    return this.#turns.splice(at)[0].asked;
  }

  /** Answers a message; returns what to say of it. */
  async turn(model, text, options) {
    const running = (this.#running = new AbortController());
    this.model = model;
    const messages = [...messagesOf(this.#turns), { role: "user", content: text }];
    const sides = SIDES[options.mode];
    const answers = sides.map((on) => new Answer(sides.length > 1 || !on ? TITLES[on] : "", options.kind === "text"));
    const turn = { asked: text, kind: options.kind, answers: [], said: "" };
    turn.node = this.#show(turn, answers);
    this.#turns.push(turn);
    const asked = (on, change) => request(model, messages, { ...options, ...change }, on);
    const runs = sides.map((on, index) => () => this.#answer(answers[index], asked(on, {}), running.signal, turn.node));
    if (options.mode === "in-turn") for (const run of runs) await run();
    else await Promise.all(runs.map((run) => run()));
    this.#keep(turn, answers, running);
    await this.#judge(turn, answers, asked, running);
    if (this.#running === running) this.#running = null;
    return [...answers.map((answer) => answer.summary), turn.said].join(". ");
  }

  /** Says whether two texts are one, then measures. */
  async #judge(turn, answers, asked, running) {
    const same = answers.length > 1 && !running.signal.aborted ? compared(...answers) : "";
    if (!same) return;
    const place = element("p", { class: "verdict" }, `${same} Measuring speed …`);
    turn.node.append(place);
    turn.said = `${same} ${await measured(this.gateway, asked, running.signal)}`.trim();
    place.textContent = turn.said;
    this.#keep(turn, answers, running);
  }

  #show(turn, answers) {
    const plain = turn.kind === "text" ? "asked plain" : "asked";
    const node = element("div", { class: "turn" });
    const tools = element("p", { class: "tools" });
    for (const [label, call] of [["Edit", this.calls.edit], ["Regenerate", this.calls.again]]) {
      const button = element("button", { type: "button", class: "small" }, label);
      button.addEventListener("click", () => call(node));
      tools.append(button);
    }
    node.append(element("p", { class: plain }, turn.asked), tools);
    node.append(element("div", { class: "answers" }, ...answers.map((answer) => answer.node)));
    if (turn.said) node.append(element("p", { class: "verdict" }, turn.said));
    this.place.append(node);
    return node;
  }

  async #answer(answer, asked, signal, node) {
    try {
      for await (const chunk of this.gateway.stream(asked, signal)) answer.take(chunk);
      answer.close();
    } catch (error) {
      answer.close(signal.aborted ? "" : error.message, signal.aborted ? null : () => this.calls.again(node));
      if (!signal.aborted) this.calls.failed(error);
    }
  }

  /** Remembers a turn, unless the conversation was left or the turn was cut away meanwhile. */
  #keep(turn, answers, running) {
    if (this.#running !== running) return;
    turn.answers = answers.map((answer) => answer.kept);
    this.calls.changed();
  }
}
