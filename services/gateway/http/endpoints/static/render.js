// Markdown on the page: elements whose content is text. What has not changed stays the same element while text grows.
import { copyButton } from "./copy.js";
import { element } from "./dom.js";
import { blocks, inline } from "./markdown.js";

const TAGS = { strong: "strong", em: "em", gone: "del", code: "code" };

export class Rendered {
  #shown = [];

  /** Shows text in a place. */
  constructor(place) {
    this.place = place;
  }

  /** The whole text so far; only blocks that differ from those before are made anew. */
  update(text) {
    const now = blocks(text);
    let same = 0;
    while (same < now.length && this.#shown[same]?.source === now[same].source) same += 1;
    const grows = this.#shown[same];
    const from = now[same] && grows && appended(grows, now[same]) ? same + 1 : same;
    const made = now.slice(from).map((block) => ({ ...block, node: drawn(block) }));
    const old = this.#shown.slice(from).map(({ node }) => node);
    for (const node of old.splice(made.length)) node.remove();
    made.forEach(({ node }, index) => (old[index] ? old[index].replaceWith(node) : this.place.append(node)));
    const kept = now.slice(0, from).map((block, index) => ({ ...block, node: this.#shown[index].node }));
    this.#shown = [...kept, ...made];
  }
}

/** Whether code that is still open could take what it lacks at its end. */
function appended(before, now) {
  const goesOn = before.kind === "code" && now.kind === "code" && before.language === now.language;
  if (!goesOn || !now.text.startsWith(before.text)) return false;
  before.node.querySelector("code").append(now.text.slice(before.text.length));
  return true;
}

function drawn(block) {
  const within = (found) => found.map(drawn);
  switch (block.kind) {
    case "heading":
      return element("p", { class: `heading level-${Math.min(block.level, 4)}` }, ...line(block.text));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...within(block.blocks));
    case "list":
      return list(block, within);
    case "table":
      return table(block);
    case "code":
      return code(block);
    default:
      return element("p", {}, ...line(block.text));
  }
}

function list({ ordered, start, items }, within) {
  const attributes = ordered && start !== 1 ? { start } : {};
  return element(ordered ? "ol" : "ul", attributes, ...items.map((item) => element("li", {}, ...within(item))));
}

function table({ head, rows }) {
  const cells = (tag, row, more) => row.map((cell) => element(tag, more, ...line(cell)));
  const top = element("thead", {}, element("tr", {}, ...cells("th", head, { scope: "col" })));
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row, {}))));
  return element("div", { class: "wide-table", tabindex: "0" }, element("table", {}, top, body));
}

function code({ language, text }) {
  const inner = element("code", {}, text);
  const bar = element("div", { class: "code-bar" }, element("span", {}, language || "text"));
  bar.append(copyButton("Copy code", () => inner.textContent));
  return element("div", { class: "code" }, bar, element("pre", { tabindex: "0" }, inner));
}

function line(text) {
  return inline(text).map(part);
}

function part(one) {
  if (one.kind === "text") return one.text;
  if (one.kind === "code") return element("code", {}, one.text);
  const parts = one.parts.map(part);
  if (one.kind !== "link") return element(TAGS[one.kind], {}, ...parts);
  return element("a", { href: one.href, rel: "noopener noreferrer nofollow", target: "_blank" }, ...parts);
}
