// One answer on the page while it grows.
import { element, showFigures } from "./dom.js";
import { Pace } from "./pace.js";
import { added } from "./request.js";
import { Trail } from "./trail.js";

const ENDS = {
  stop_token: "ended",
  stop_string: "ended",
  length: "token limit",
  context: "context full",
  deadline: "time limit",
};

export class Answer {
  text = "";
  whole = false;
  pace = new Pace();
  #trail = new Trail();
  #state = "waits";

  /** An answer with a title; `plain` shows it as code. */
  constructor(title, plain) {
    this.thought = element("p", { class: "text thought", hidden: "" });
    this.shown = element("p", { class: plain ? "text plain" : "text" });
    this.figures = element("dl", { class: "figures" });
    const parts = [element("h3", {}, title), this.thought, this.shown, this.figures];
    this.node = element("article", { "aria-busy": "true", "aria-label": title }, ...parts);
    this.#tell();
  }

  /** Adds a chunk. */
  take(chunk) {
    const { text, thought, tokens, end } = added(chunk);
    this.#trail.push(tokens);
    this.pace.add(tokens, performance.now());
    this.text += text;
    this.#show(this.thought, thought);
    this.#show(this.shown, text);
    this.#state = end ? ENDS[end] ?? end : "runs";
    this.whole ||= Boolean(end);
    this.#tell();
  }

  /** Nothing follows; a problem is said in place of the end. */
  close(problem = "") {
    this.node.setAttribute("aria-busy", "false");
    if (!this.whole) this.#state = problem ? "failed" : "stopped";
    if (problem) this.node.append(element("p", { class: "wrong" }, problem));
    this.#tell();
  }

  /** One line for those who cannot see it. */
  get summary() {
    const { tokens, tau, perSecond } = this.pace;
    return `${this.#state}, ${tokens} tokens, tau ${fixed(tau, 2)}, ${fixed(perSecond, 0)} tokens per second`;
  }

  #show(place, text) {
    for (const part of this.#trail.take(text)) {
      const name = part.accepted ? "MARK" : "#text";
      const last = place.lastChild;
      if (last?.nodeName === name) (last.firstChild ?? last).appendData(part.text);
      else place.append(part.accepted ? element("mark", {}, part.text) : part.text);
    }
    if (text) place.hidden = false;
  }

  #tell() {
    const { tokens, tau, perSecond } = this.pace;
    const figures = { tau: fixed(tau, 2), "tok/s": fixed(perSecond, 0), tokens: String(tokens), state: this.#state };
    showFigures(this.figures, figures);
  }
}

/** A number, or a dash while there is none. */
export function fixed(value, digits) {
  return value ? value.toFixed(digits) : "–";
}
