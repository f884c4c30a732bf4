// Brings the parts of the page together.
import { Conversation } from "./conversation.js";
import { setText } from "./dom.js";
import { followEnd } from "./follow.js";
import { Gateway } from "./gateway.js";
import { History } from "./history.js";
import { chosen } from "./request.js";
import { StatusPanel } from "./status.js";
import { Store } from "./store.js";

const EMBEDDED = "paceline-embedded";
const WIDE = "(min-width: 62rem)";
const by = (id) => document.getElementById(id);
const [ask, access, message, send, stop, opener] = ["ask", "access", "message", "send", "stop", "key-open"].map(by);
const gateway = new Gateway();
const store = new Store(storage());
const conversation = new Conversation(gateway, by("turns"), { failed, changed, edit, again });
const history = new History(store, document, { open, dropped });
const panel = new StatusPanel(gateway, document);
let model = null;

/** What this browser keeps things in, null where it may not. */
function storage() {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

function failed(error) {
  if (error.wantsKey && access.hidden) showAccess(true);
}

function say(text) {
  setText(by("news"), text);
}

function showAccess(shown) {
  access.hidden = !shown;
  opener.setAttribute("aria-expanded", String(shown));
}

/** Keeps the conversation as it is now. */
function changed() {
  const { kept } = conversation;
  const done = kept ? store.keep(kept) : (store.drop(conversation.id), true);
  history.show(conversation.id);
  if (!done) history.refused();
}

function open(kept) {
  conversation.open(kept);
  working(false);
  history.show(conversation.id);
  message.focus();
}

function dropped(id) {
  if (id === conversation.id) open(null);
  else history.show(conversation.id);
}

/** Takes a message back into the field; it and what follows go. */
function edit(turn) {
  if (conversation.busy) return;
  message.value = conversation.cut(turn);
  changed();
  fit();
  message.focus();
}

/** Asks a message anew; what follows it goes. */
function again(turn) {
  if (conversation.busy) return;
  const text = conversation.cut(turn);
  answer(text);
}

/** Learns the model; the embedded one continues text and answers nothing. */
async function meet() {
  try {
    model = await gateway.model();
  } catch (error) {
    failed(error);
    say(error.message);
    return;
  }
  const drafts = model.paceline.proposer;
  setText(by("model"), drafts !== "none" ? `${model.id}, drafts by ${drafts}` : model.id);
  if (model.id !== EMBEDDED) return;
  const about = by("about");
  setText(about, "This is the small embedded demonstration model: it continues Python-like text and answers nothing.");
  about.hidden = false;
  ask.elements.kind.value = "text";
  message.placeholder = "def fibonacci(n):";
}

function working(busy) {
  const here = document.activeElement;
  send.disabled = busy;
  stop.disabled = !busy;
  if (here === send || here === stop) (busy ? stop : message).focus();
}

async function submit() {
  const text = message.value;
  if (!text.trim() || conversation.busy || !ask.reportValidity()) return;
  if (await answer(text)) return;
  message.value = text;
  fit();
}

/** Answers a text; false when no model is known. */
async function answer(text) {
  if (!model) await meet();
  if (conversation.busy) return true;
  if (!model) {
    setText(by("problem"), "No model yet: the gateway does not answer, or wants a key. The message is kept below.");
    return false;
  }
  setText(by("problem"), "");
  message.value = "";
  fit();
  working(true);
  say("Answering.");
  const { id } = conversation;
  const said = await conversation.turn(model.id, text, chosen(ask));
  if (conversation.id !== id) return true;
  say(said);
  working(false);
  return true;
}

/** Makes the field as high as its text, up to what the style sheet allows. */
function fit() {
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight + 2}px`;
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
message.addEventListener("input", fit);
message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => event.key === "Escape" && conversation.stop());
stop.addEventListener("click", () => conversation.stop());
by("forget").addEventListener("click", () => open(null));
ask.elements.marks.addEventListener("change", () => {
  document.body.classList.toggle("marks", ask.elements.marks.checked);
});
opener.addEventListener("click", () => showAccess(access.hidden));
access.addEventListener("submit", async (event) => {
  event.preventDefault();
  gateway.use(access.elements.key.value.trim());
  showAccess(false);
  await Promise.all([meet(), panel.look()]);
  if (access.hidden) message.focus();
  else access.elements.key.focus();
});
for (const details of document.querySelectorAll("aside details")) details.open = matchMedia(WIDE).matches;
followEnd(by("talk"));
const latest = store.all()[0];
if (latest) conversation.open(latest);
history.show(conversation.id);
meet();
panel.follow();
