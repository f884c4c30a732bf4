// Which characters of an answer come from accepted drafts.

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
    const skipped = this.#text.indexOf(shown);
    if (!shown || skipped < 0) return shown ? [{ text: shown, accepted: false }] : [];
    this.#drop(skipped);
    let from = 0;
    return this.#drop(shown.length).map(({ size, accepted }) => {
      from += size;
      return { text: shown.slice(from - size, from), accepted };
    });
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
