// Which characters of an answer come from accepted drafts.

const CUT = "\ufffd";

/**
 * Tokens that have come and are not shown yet. Their text is what the model wrote; what is shown lacks some of it, such as
 * the tags around thoughts, and may come later than its tokens.
 */
export class Trail {
  #text = "";
  #spans = [];

  /** Adds the tokens of a chunk. */
  push(tokens) {
    for (const { text, accepted } of tokens) {
      this.#text += text;
      if (text) this.#spans.push({ size: text.length, accepted });
    }
  }

  /** Cuts shown text where accepted drafts begin and end; text without tokens counts as not drafted. */
  take(shown) {
    const known = this.#known(shown);
    this.#drop(this.#text.indexOf(known));
    let from = 0;
    const parts = this.#drop(known.length).map(({ size, accepted }) => {
      from += size;
      return { text: shown.slice(from - size, from), accepted };
    });
    return from < shown.length ? [...parts, { text: shown.slice(from), accepted: false }] : parts;
  }

  /** The beginning of shown text that tokens tell of; none tells of the CUT of an output that ends inside a character. */
  #known(shown) {
    const beginnings = [shown, shown.endsWith(CUT) ? shown.slice(0, -1) : ""];
    return beginnings.find((one) => this.#text.includes(one)) ?? "";
  }

  /** Takes characters from the front; returns the spans that they were in. */
  #drop(characters) {
    this.#text = this.#text.slice(characters);
    const dropped = [];
    while (characters > 0) {
      const [first] = this.#spans;
      const size = Math.min(first.size, characters);
      dropped.push({ size, accepted: first.accepted });
      characters -= size;
      first.size -= size;
      if (!first.size) this.#spans.shift();
    }
    return dropped;
  }
}
