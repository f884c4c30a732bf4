// Buttons that copy a text.
import { element, setText } from "./dom.js";

const TOLD_MS = 1500;

/** A button that copies what `text` gives when it is pressed, and says so. */
export function copyButton(label, text) {
  const button = element("button", { type: "button", class: "small" }, label);
  button.addEventListener("click", async () => {
    setText(button, (await copied(text())) ? "Copied" : "Not copied");
    setTimeout(() => setText(button, label), TOLD_MS);
  });
  return button;
}

/** Copies; browsers offer the clipboard to pages over TLS or of this machine alone, so there is an older way. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const held = element("textarea", { class: "unseen" });
    held.value = text;
    document.body.append(held);
    held.select();
    const done = document.execCommand("copy");
    held.remove();
    return done;
  }
}
