// What readers do on the page; each returns what there was to see.
import { readFileSync } from "node:fs";

const LOOKS_MS = 2500; // The status is asked for every two seconds.

/** Writes a message, with other fields of the form, and sends it. */
async function send(page, { message, mode = "on", kind = "chat", marks = false, ...fields }) {
  await opened(page, true);
  await page.getByLabel("Send as").selectOption(kind);
  for (const [name, value] of Object.entries(fields)) await page.locator(`[name=${name}]`).fill(String(value));
  await page.locator(`[name=mode][value=${mode}]`).check();
  await page.locator("[name=marks]").setChecked(marks);
  await opened(page, false);
  await page.getByLabel("Message", { exact: true }).fill(message);
  await page.keyboard.press("Enter");
}

async function opened(page, open) {
  await page.locator("#more").evaluate((details, wanted) => (details.open = wanted), open);
}

async function ended(page) {
  await page.waitForFunction(() => {
    const answers = [...document.querySelectorAll("article")];
    const done = answers.length && answers.every((one) => one.getAttribute("aria-busy") === "false");
    return done && document.getElementById("stop").disabled;
  });
}

/** All answers: their text as it is shown, and the same in pieces with the tag that each stands in. */
async function answers(page) {
  return page.locator("article").evaluateAll((found) =>
    found.map((one) => ({
      title: one.querySelector("h3")?.textContent ?? "",
      text: one.querySelector(".marked:not(.thought)").textContent,
      formatted: one.querySelector(".formatted").innerHTML,
      thought: one.querySelector(".thought").textContent,
      pieces: [...one.querySelectorAll(".marked")].flatMap((place) =>
        [...place.childNodes].map((piece) => [piece.nodeName, piece.textContent]),
      ),
      figures: Object.fromEntries(
        [...one.querySelectorAll(".figures div")].map((pair) => [...pair.children].map((cell) => cell.textContent)),
      ),
      elements: one.querySelectorAll("*:not(h3, p, div, dl, dl *, mark, button)").length,
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
  await page.waitForFunction(() => document.querySelector("article .marked:not(.thought)")?.textContent.length > 20);
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
  for (let step = 0; step < 16; step += 1) {
    await page.keyboard.press("Tab");
    order.push(await page.evaluate(() => ((here) => here.id || here.name || here.tagName)(document.activeElement)));
  }
  return { order };
}

/** What axe finds on the page after a comparison, with everything open, in both colour schemes. */
export async function axe(page, given) {
  await answer(page, given);
  await page.getByRole("button", { name: "Key" }).click();
  await opened(page, true);
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
  await page.waitForFunction(() => /checked per round\s*\d/.test(document.getElementById("status-total").textContent));
  await page.screenshot({ path: given.path });
  return seen;
}

/** A conversation, loaded again, edited, regenerated, exported and deleted. */
export async function kept(page, given) {
  await answer(page, given);
  await send(page, { ...given.form, message: "and then?" });
  await ended(page);
  const before = await answers(page);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("article").length === 2);
  const after = await answers(page);
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export hello" }).click();
  const exported = JSON.parse(readFileSync(await (await downloading).path(), "utf8"));
  await page.getByRole("button", { name: "Regenerate" }).last().click();
  await ended(page);
  const again = await answers(page);
  await page.getByRole("button", { name: "Edit" }).last().click();
  const edited = await page.locator("#message").inputValue();
  const left = await page.locator("article").count();
  await page.getByRole("button", { name: "New conversation" }).click();
  const empty = await page.locator("article").count();
  await page.getByRole("button", { name: "Open hello" }).click();
  const opened = await page.locator("article").count();
  await page.getByRole("button", { name: "Delete hello" }).click();
  const gone = await page.evaluate(() => [localStorage.getItem("paceline.conversations"), document.querySelectorAll("article").length]);
  return { before, after, exported, again, edited, left, empty, opened, gone };
}

/** What is said when the gateway has gone: requests fail from a moment on, and succeed again later. */
export async function gone(page, given) {
  await page.waitForFunction(() => document.getElementById("status-total").children.length);
  await page.waitForFunction(() => document.getElementById("model").textContent !== "no model yet");
  await page.route("**/v1/**", (route) => route.abort("connectionrefused"));
  await page.waitForFunction(() => document.getElementById("status").classList.contains("stale"));
  const { note } = await told(page);
  await send(page, given.form);
  await ended(page);
  const failed = await answers(page);
  await page.unroute("**/v1/**");
  await page.getByRole("button", { name: "Try again" }).click();
  await ended(page);
  await page.waitForFunction(() => !document.getElementById("status").classList.contains("stale"));
  return { note, failed, answers: await answers(page) };
}

/** Pictures a second from now on until what is awaited has come, and milliseconds that the page computes for one. */
async function rateUntil(page, awaited) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  const computed = async () => {
    const { metrics } = await devtools.send("Performance.getMetrics");
    return metrics.find(({ name }) => name === "TaskDuration").value;
  };
  const before = await computed();
  const from = await page.evaluate(() => window.frames.length);
  const begun = Date.now();
  await awaited();
  const seconds = (Date.now() - begun) / 1000;
  const times = await page.evaluate((start) => window.frames.slice(start), from);
  const frames = times.length;
  const gaps = times.slice(1).map((time, place) => time - times[place]).sort((one, other) => one - other);
  const each = (1000 * ((await computed()) - before)) / frames;
  return { rate: frames / seconds, gap: gaps[Math.floor(gaps.length / 2)], seconds, each };
}

/** How steady a stream is: layout shifts, pictures a second, the middle gap between two in ms; and where one writes. */
export async function steady(page, given) {
  await page.evaluate(() => {
    window.shifts = [];
    window.frames = [];
    const where = ({ node }) => (node?.outerHTML ?? node?.parentElement?.outerHTML ?? "").slice(0, 80);
    new PerformanceObserver((list) => {
      const moved = list.getEntries().filter(({ hadRecentInput }) => !hadRecentInput);
      window.shifts.push(...moved.map(({ value, sources }) => [value, ...sources.map(where)]));
    }).observe({ type: "layout-shift" });
    const frame = (now) => {
      window.frames.push(now);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  await send(page, given.form);
  await page.waitForFunction(() => document.querySelector("article"));
  await page.evaluate(() => window.shifts.splice(0)); // What moved while the form was filled in.
  await page.waitForFunction(() => document.querySelector("article .marked:not(.thought)")?.textContent.length > 40);
  const streaming = await rateUntil(page, () => ended(page));
  const shifts = await page.evaluate(() => window.shifts);
  await page.evaluate(() => window.scrollTo(0, 0));
  const box = await page.locator("#ask").boundingBox();
  return { shifts, ...streaming, box, answers: await answers(page) };
}

/** Which of the two forms of an answer is seen. */
export async function marks(page, given) {
  await send(page, given.form);
  await ended(page);
  const seen = (where) => page.locator(where).isVisible();
  return {
    marked: await seen("article .marked:not(.thought)"),
    formatted: await seen("article .formatted"),
    hint: await seen("#marks-hint"),
  };
}
