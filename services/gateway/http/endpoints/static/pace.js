// How fast an answer comes.

export class Pace {
  #tokens = 0;
  #accepted = 0;
  #early = 0;
  #first = 0;
  #last = 0;

  /** Counts the tokens of a chunk that came at a time in milliseconds. */
  add(tokens, now) {
    if (!tokens.length) return;
    if (!this.#tokens) [this.#first, this.#early] = [now, tokens.length];
    this.#tokens += tokens.length;
    this.#accepted += tokens.filter((token) => token.accepted).length;
    this.#last = now;
  }

  get tokens() {
    return this.#tokens;
  }

  /** Mean tokens per round, 0 without one: the first token is the prompt's, and each round commits one that was no draft. */
  get tau() {
    const rounds = this.#tokens - this.#accepted - 1;
    return rounds > 0 ? (this.#accepted + rounds) / rounds : 0;
  }

  /** Tokens per second after the first ones; 0 when all came at once. */
  get perSecond() {
    const seconds = (this.#last - this.#first) / 1000;
    return seconds > 0 ? (this.#tokens - this.#early) / seconds : 0;
  }
}
