// Conversations in this browser's storage, the latest first. A key is never among them.

const NAME = "paceline.conversations";
const MOST = 50;
const TITLE = 60;

export class Store {
  /** Keeps in a Storage; one that is full or forbidden keeps less, or nothing. */
  constructor(storage) {
    this.storage = storage;
  }

  /** All conversations, the latest first; what cannot be read is none. */
  all() {
    try {
      const kept = JSON.parse(this.storage.getItem(NAME) ?? "[]");
      return Array.isArray(kept) ? kept.filter((one) => typeof one?.id === "string" && Array.isArray(one.turns)) : [];
    } catch {
      return [];
    }
  }

  /** Keeps a conversation in place of the one with its id; the oldest go where there is no room. Whether it is kept. */
  keep(conversation) {
    const others = this.all().filter((one) => one.id !== conversation.id);
    let kept = [conversation, ...others].slice(0, MOST);
    for (; kept.length; kept = kept.slice(0, -1)) {
      if (this.#write(kept)) return true;
    }
    return false;
  }

  /** Forgets one. */
  drop(id) {
    this.#write(this.all().filter((one) => one.id !== id));
  }

  #write(kept) {
    try {
      this.storage.setItem(NAME, JSON.stringify(kept));
      return true;
    } catch {
      return false;
    }
  }
}

/** What a conversation is listed as: the beginning of its first message. */
export function titleOf(turns) {
  const text = (turns[0]?.asked ?? "").trim().replace(/\s+/g, " ");
  return text.length > TITLE ? `${text.slice(0, TITLE - 1)}…` : text;
}

/** Messages of the turns that are a chat and were answered, as they are sent again. */
export function messagesOf(turns) {
  const chat = turns.filter(({ kind, answers }) => kind === "chat" && answers[0]?.text);
  return chat.flatMap(({ asked, answers }) => [
    { role: "user", content: asked },
    { role: "assistant", content: answers[0].text },
  ]);
}

/** A conversation as people take it away: messages as OpenAI's API knows them. */
export function exported({ title, at, model, turns }) {
  const messages = turns.flatMap(({ asked, answers }) => [
    { role: "user", content: asked },
    ...answers.map(({ title: of, text }) => ({ role: "assistant", content: text, ...(of ? { name: of } : {}) })),
  ]);
  return JSON.stringify({ title, at, model, messages }, null, 2);
}
