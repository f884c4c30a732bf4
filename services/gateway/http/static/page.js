// Brings the parts of the page together.
import { Conversation } from "./conversation.js";
import { setText } from "./dom.js";
import { followEnd } from "./follow.js";
import { Gateway } from "./gateway.js";
import { chosen } from "./request.js";
import { StatusPanel } from "./status.js";

const EMBEDDED = "paceline-embedded";
const [ask, access, message, send, stop, opener] = ["ask", "access", "message", "send", "stop", "key-open"].map((id) =>
  document.getElementById(id),
);
const gateway = new Gateway();
const conversation = new Conversation(gateway, document.getElementById("turns"), failed);
const panel = new StatusPanel(gateway, document);
let model = null;

function failed(error) {
  if (error.wantsKey && access.hidden) showAccess(true);
}

function say(text) {
  setText(document.getElementById("news"), text);
}

function showAccess(shown) {
  access.hidden = !shown;
  opener.setAttribute("aria-expanded", String(shown));
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
  setText(document.getElementById("model"), drafts !== "none" ? `${model.id}, drafts by ${drafts}` : model.id);
  if (model.id !== EMBEDDED) return;
  const about = document.getElementById("about");
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
  if (!model) await meet();
  if (!model || conversation.busy) return;
  message.value = "";
  working(true);
  say("Answering.");
  say(await conversation.turn(model.id, text, chosen(ask)));
  working(false);
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => event.key === "Escape" && conversation.stop());
stop.addEventListener("click", () => conversation.stop());
document.getElementById("forget").addEventListener("click", () => {
  conversation.forget();
  message.focus();
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
followEnd(document.getElementById("talk"));
meet();
panel.follow();
