// What readers do on the page; each returns what there was to see.
import { readFileSync } from "node:fs";

const LOOKS_MS = 2500; // The status is asked for every two seconds.

/** Writes a message, with other fields of the form, and sends it. */
async function send(page, { message, mode = "on", kind = "chat", ...fields }) {
  await page.locator("summary").evaluate((summary) => (summary.parentElement.open = true));
  await page.getByLabel("Send as").selectOption(kind);
  for (const [name, value] of Object.entries(fields)) await page.locator(`[name=${name}]`).fill(String(value));
  await page.locator("summary").evaluate((summary) => (summary.parentElement.open = false));
  await page.locator(`[name=mode][value=${mode}]`).check();
  await page.getByLabel("Message", { exact: true }).fill(message);
  await page.keyboard.press("Enter");
}

async function ended(page) {
  await page.waitForFunction(() => {
    const answers = [...document.querySelectorAll("article")];
    return answers.length && answers.every((one) => one.getAttribute("aria-busy") === "false");
  });
}

/** All answers: their text as it is shown, and the same in pieces with the tag that each stands in. */
async function answers(page) {
  return page.locator("article").evaluateAll((found) =>
    found.map((one) => ({
      title: one.querySelector("h3").textContent,
      text: one.querySelector(".text:not(.thought)").textContent,
      thought: one.querySelector(".thought").textContent,
      pieces: [...one.querySelectorAll(".text")].flatMap((place) =>
        [...place.childNodes].map((piece) => [piece.nodeName, piece.textContent]),
      ),
      figures: Object.fromEntries(
        [...one.querySelectorAll(".figures div")].map((pair) => [...pair.children].map((cell) => cell.textContent)),
      ),
      elements: one.querySelectorAll("*:not(h3, p, dl, dl *, mark)").length,
      wrong: [...one.querySelectorAll(".wrong")].map((problem) => problem.textContent),
    })),
  );
}

async function told(page) {
  const text = (id) => page.locator(id).textContent();
  return { news: await text("#news"), about: await text("#about"), model: await text("#model"), note: await text("#status-note") };
}

/** One turn, read to its end. */
export async function answer(page, given) {
  await send(page, given.form);
  await ended(page);
  await page.waitForFunction(() => document.getElementById("status-total").children.length);
  const verdicts = await page.locator(".verdict").allTextContents();
  const pairs = await page.locator("tbody tr").count();
  return { ...(await told(page)), answers: await answers(page), verdicts, pairs };
}

/** Two turns of one conversation. */
export async function twice(page, given) {
  await send(page, given.form);
  await ended(page);
  await send(page, { ...given.form, message: "and then?" });
  await page.waitForFunction(() => document.querySelectorAll("article").length === 2);
  await ended(page);
  return { answers: await answers(page) };
}

/** Stops an answer that runs, by its button or by a key. */
export async function stop(page, given) {
  await send(page, given.form);
  await page.waitForFunction(() => document.querySelector("article .text:not(.thought)")?.textContent.length > 20);
  if (given.key) await page.keyboard.press(given.key);
  else await page.getByRole("button", { name: "Stop" }).click();
  await ended(page);
  const focused = await page.evaluate(() => document.activeElement.id);
  const enabled = await page.getByRole("button", { name: "Send" }).isEnabled();
  return { ...(await told(page)), answers: await answers(page), focused, enabled };
}

/** Enters a key where one is needed. */
export async function key(page, given) {
  await page.getByLabel("Key for this gateway").waitFor();
  await page.waitForTimeout(LOOKS_MS);
  const before = await told(page);
  await page.getByLabel("Key for this gateway").fill(given.secret);
  await page.getByRole("button", { name: "Use this key" }).click();
  await page.waitForFunction(() => document.getElementById("status-total").children.length);
  const seen = await answer(page, given);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  return { ...seen, before, kept, url: page.url(), asks: await page.locator("#access").isVisible() };
}

/** Follows the status until a request runs. */
export async function status(page, given) {
  await send(page, given.form);
  await page.waitForFunction(() => document.getElementById("status-total").innerText.includes("1 of"));
  const running = await page.locator("#status-total").innerText();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.waitForFunction(() => document.getElementById("status-total").innerText.includes("0 of"));
  return { running };
}

/** Where Tab leads from the beginning. */
export async function tabs(page) {
  await page.locator("#status-pairs").waitFor();
  const order = [];
  for (let step = 0; step < 12; step += 1) {
    await page.keyboard.press("Tab");
    order.push(await page.evaluate(() => ((here) => here.id || here.name || here.tagName)(document.activeElement)));
  }
  return { order };
}

/** What axe finds on the page after a comparison, with everything open, in both colour schemes. */
export async function axe(page, given) {
  await answer(page, given);
  await page.getByRole("button", { name: "Key" }).click();
  await page.locator("summary").click();
  const source = readFileSync(`${given.packages}/node_modules/axe-core/axe.min.js`, "utf8");
  const found = {};
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.evaluate(source);
    const { violations, passes } = await page.evaluate(() => window.axe.run());
    const defects = violations.map(({ id, impact, nodes }) => [id, impact, nodes.map((node) => node.html)]);
    found[colorScheme] = { defects, passes: passes.length };
  }
  return found;
}

/** One turn as a picture, with the status that tells of it. */
export async function picture(page, given) {
  const seen = await answer(page, given);
  await page.waitForFunction(() => /widths\s+\d/.test(document.getElementById("status-total").innerText));
  await page.screenshot({ path: given.path });
  return seen;
}
