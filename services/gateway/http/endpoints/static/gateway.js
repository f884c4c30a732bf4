// What the page asks of the gateway that serves it. The key lives in this object and nowhere else.
import { events } from "./events.js";

const LOOK_MS = 10_000;

/** The gateway said no. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** A key is missing or wrong. */
  get wantsKey() {
    return this.status === 401;
  }
}

/** Nobody answers. */
export class Gone extends Error {
  constructor() {
    super("The gateway does not answer. It may have been stopped, or the network is away.");
  }
}

export class Gateway {
  #key = "";

  /** From now on requests carry this key; an empty one is left out. */
  use(key) {
    this.#key = key;
  }

  /** The model served. */
  async model() {
    return (await this.#look("v1/models")).data[0];
  }

  /** How busy the pairs are. */
  async status() {
    return this.#look("v1/paceline/status");
  }

  /** The chunks of an answer as they come; aborting the signal ends it in the gateway too. */
  async *stream({ path, body }, signal) {
    const options = { method: "POST", body: JSON.stringify(body), signal };
    const reply = await this.#ask(path, options, { "Content-Type": "application/json" });
    try {
      for await (const chunk of events(reply.body)) {
        if (chunk.error) throw new Refusal(0, chunk.error.message);
        yield chunk;
      }
    } catch (error) {
      throw error instanceof TypeError ? new Gone() : error;
    }
  }

  async #look(path) {
    return (await this.#ask(path, { signal: AbortSignal.timeout(LOOK_MS) })).json();
  }

  async #ask(path, options, headers = {}) {
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    const fixed = { cache: "no-store", credentials: "omit", redirect: "error" };
    const reply = await fetch(path, { ...options, ...fixed, headers }).catch((error) => {
      throw options.signal.aborted && error.name === "AbortError" ? error : new Gone();
    });
    if (reply.ok) return reply;
    const told = await reply.json().catch(() => null);
    throw new Refusal(reply.status, told?.error?.message ?? `the gateway answered ${reply.status}`);
  }
}
