// The panel that tells how busy the pairs are.
import { fixed } from "./answer.js";
import { element, setText, showFigures } from "./dom.js";

const EVERY_MS = 2000;
const WIDTHS = 3;

export class StatusPanel {
  #denied = false;
  #seen = null;

  constructor(gateway, document) {
    this.gateway = gateway;
    this.panel = document.getElementById("status");
    this.note = document.getElementById("status-note");
    this.total = document.getElementById("status-total");
    this.pairs = document.getElementById("status-pairs");
  }

  /** Asks again and again, while somebody can see it; once a key was missing, only after `look` had one. */
  async follow() {
    for (;;) {
      if (document.visibilityState === "visible" && !this.#denied) await this.look();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }

  /** Asks once. */
  async look() {
    try {
      this.#show(await this.gateway.status());
      this.#denied = false;
    } catch (error) {
      this.#denied = Boolean(error.wantsKey);
      this.#old(this.#denied ? "Needs a key." : this.#gone());
    }
  }

  #gone() {
    const last = this.#seen ? ` Last heard of at ${this.#seen.toLocaleTimeString()}.` : "";
    return `The gateway does not answer; it is asked again every ${EVERY_MS / 1000} seconds.${last}`;
  }

  /** What stands there is not of now. */
  #old(note) {
    setText(this.note, note);
    this.panel.classList.toggle("stale", true);
  }

  #show(status) {
    this.#seen = new Date();
    this.panel.classList.toggle("stale", false);
    setText(this.note, `${status.ready_pairs} of ${status.pairs} pairs ready`);
    const { total } = status;
    showFigures(this.total, {
      running: `${total.running} of ${total.slots}`,
      waiting: String(total.waiting),
      "prompt tokens waiting": String(total.queued_tokens),
      "tokens per second": fixed(total.tokens_per_second, 0),
      "tokens per round": fixed(total.tokens_per_round, 2),
      "tokens checked per round": widths(total.rounds_by_width),
      "cache in use": used(total),
    });
    this.pairs.hidden = !status.each.length;
    this.pairs.querySelector("tbody").replaceChildren(...status.each.map(row));
  }
}

function row({ pair_id, ready, speculating, proposer, activity }) {
  const drafts = ready ? (speculating ? proposer : "none") : "away";
  const figures = [
    drafts,
    `${activity.running} of ${activity.slots}`,
    fixed(activity.tokens_per_second, 0),
    fixed(activity.tokens_per_round, 2),
    used(activity),
  ];
  return element("tr", {}, element("th", { scope: "row" }, pair_id), ...figures.map((one) => element("td", {}, one)));
}

/** Part of the cache of keys and values in use. */
function used({ free_blocks, total_blocks }) {
  return total_blocks ? `${Math.round(100 * (1 - free_blocks / total_blocks))} %` : "–";
}

/** Shares of rounds by the tokens that they checked of a request, the most used first. */
function widths(rounds) {
  const all = Object.values(rounds).reduce((sum, count) => sum + count, 0);
  const most = Object.entries(rounds).sort(([, one], [, other]) => other - one);
  const shares = most.map(([width, count]) => `${width} in ${Math.round((100 * count) / all)} %`);
  return shares.slice(0, WIDTHS).join(", ") || "–";
}
