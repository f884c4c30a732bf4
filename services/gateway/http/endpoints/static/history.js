// The list of conversations that this browser keeps.
import { element, setText } from "./dom.js";
import { exported } from "./store.js";

export class History {
  /** Shows a store's list; `open` is called with a conversation, `dropped` with the id of one that was forgotten. */
  constructor(store, document, { open, dropped }) {
    this.store = store;
    this.list = document.getElementById("kept");
    this.none = document.getElementById("kept-none");
    this.calls = { open, dropped };
  }

  /** Shows what is kept now. */
  show(current) {
    const all = this.store.all();
    this.none.hidden = all.length > 0;
    this.list.replaceChildren(...all.map((one) => this.#item(one, one.id === current)));
  }

  /** Says that nothing can be kept. */
  refused() {
    setText(this.none, "This browser keeps nothing: its storage is full or switched off.");
    this.none.hidden = false;
  }

  #item(one, current) {
    const title = one.title || "Untitled";
    const item = element("li", {});
    const button = (label, name, call) => {
      const made = element("button", { type: "button", class: "small", "aria-label": name }, label);
      made.addEventListener("click", call);
      return made;
    };
    const opener = button(title, `Open ${title}`, () => this.calls.open(one));
    opener.classList.add("title");
    if (current) opener.setAttribute("aria-current", "true");
    const drop = () => {
      this.store.drop(one.id);
      this.calls.dropped(one.id);
    };
    item.append(opener, button("Export", `Export ${title}`, () => save(one)), button("Delete", `Delete ${title}`, drop));
    return item;
  }
}

/** Gives a conversation to the reader as a file. */
function save(one) {
  const href = URL.createObjectURL(new Blob([exported(one)], { type: "application/json" }));
  const link = element("a", { href, download: `conversation-${one.at.slice(0, 10)}.json` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}
