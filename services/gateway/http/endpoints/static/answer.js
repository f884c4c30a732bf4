// One answer on the page while it grows.
import { copyButton } from "./copy.js";
import { element, showFigures } from "./dom.js";
import { Pace } from "./pace.js";
import { Rendered } from "./render.js";
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
  thought = "";
  whole = false;
  pace = new Pace();
  #trail = new Trail();
  #state = "waits";
  #pieces = [];
  #figures = {};
  #due = false;

  /** An answer with a title, which may be empty; `plain` shows it as it was written. */
  constructor(title, plain) {
    this.title = title;
    this.plain = plain;
    this.thoughts = element("p", { class: "text marked thought", hidden: "" });
    this.marked = element("p", { class: plain ? "text marked plain" : "text marked" });
    this.formatted = element("div", { class: "text formatted" });
    this.rendered = plain ? null : new Rendered(this.formatted);
    this.formatted.hidden = plain;
    this.figures = element("dl", { class: "figures" });
    const copy = copyButton("Copy", () => this.text);
    const foot = element("div", { class: "foot" }, copy, this.figures);
    const head = title ? [element("h3", {}, title)] : [];
    const parts = [...head, foot, this.thoughts, this.formatted, this.marked]; // What grows is last, so nothing is moved.
    const attributes = { "aria-busy": "true", "aria-label": title || "Answer", class: plain ? "as-written" : "" };
    this.node = element("article", attributes, ...parts);
    this.#tell();
  }

  /** An answer as it was kept. */
  static restored(kept, plain) {
    const answer = new Answer(kept.title, plain);
    answer.text = kept.text;
    answer.#figures = kept.figures;
    for (const [place, text, accepted] of kept.pieces) answer.#append(place, text, accepted);
    answer.rendered?.update(kept.text);
    answer.node.setAttribute("aria-busy", "false");
    showFigures(answer.figures, kept.figures);
    return answer;
  }

  /** What is worth keeping. */
  get kept() {
    return { title: this.title, text: this.text, pieces: this.#pieces, figures: this.#figures };
  }

  /** Adds a chunk; it is shown with the next picture of the screen. */
  take(chunk) {
    const { text, thought, tokens, end } = added(chunk);
    this.#trail.push(tokens);
    this.pace.add(tokens, performance.now());
    this.text += text;
    this.#cut(1, thought);
    this.#cut(0, text);
    this.#state = end ? ENDS[end] ?? end : "runs";
    this.whole ||= Boolean(end);
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => this.#paint());
  }

  /** Nothing follows; a problem is said in place of the end, and `again` may ask once more. */
  close(problem = "", again = null) {
    this.#paint();
    this.node.setAttribute("aria-busy", "false");
    if (!this.whole) this.#state = problem ? "failed" : "stopped";
    if (problem) this.node.append(element("p", { class: "wrong" }, problem));
    if (again) {
      const button = element("button", { type: "button", class: "small" }, "Try again");
      button.addEventListener("click", again);
      this.node.append(button);
    }
    this.#tell();
  }

  /** One line for those who cannot see it. */
  get summary() {
    const { tokens, tau, perSecond } = this.pace;
    const speed = `${fixed(perSecond, 0)} tokens per second, ${fixed(tau, 2)} tokens per round`;
    return `${this.#state}, ${tokens} tokens, ${speed}`;
  }

  #cut(place, text) {
    for (const { text: part, accepted } of this.#trail.take(text)) this.#append(place, part, accepted);
  }

  #append(place, text, accepted) {
    const last = this.#pieces.at(-1);
    if (last && last[0] === place && last[2] === accepted) last[1] += text;
    else this.#pieces.push([place, text, accepted]);
    const shown = place ? this.thoughts : this.marked;
    const name = accepted ? "MARK" : "#text";
    const node = shown.lastChild;
    if (node?.nodeName === name) (node.firstChild ?? node).appendData(text);
    else shown.append(accepted ? element("mark", {}, text) : text);
    if (place) shown.hidden = false;
  }

  #paint() {
    this.#due = false;
    this.rendered?.update(this.text);
    this.#tell();
  }

  #tell() {
    const { tokens, tau, perSecond } = this.pace;
    this.#figures = {
      "tokens per second": fixed(perSecond, 0),
      "tokens per round": fixed(tau, 2),
      tokens: String(tokens),
      state: this.#state,
    };
    showFigures(this.figures, this.#figures);
  }
}

/** A number, or a dash while there is none. */
export function fixed(value, digits) {
  return value ? value.toFixed(digits) : "–";
}
