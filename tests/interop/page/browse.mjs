// node browse.mjs SCENARIO, with what it needs as JSON on stdin: plays a scenario on the page and prints what was seen.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import * as scenarios from "./scenarios.mjs";

const PATIENCE_MS = 20_000;
const given = JSON.parse(readFileSync(0, "utf8"));
const { chromium } = createRequire(`${given.packages}/`)("playwright-core");

const env = { ...process.env, ...given.needs };
const browser = await chromium.launch({ executablePath: given.browser, env, chromiumSandbox: false });
try {
  const page = await browser.newPage({ viewport: given.viewport ?? { width: 1280, height: 860 } });
  page.setDefaultTimeout(PATIENCE_MS);
  const complaints = [];
  page.on("console", (message) => {
    const loud = ["error", "warning"].includes(message.type());
    if (loud && !(given.allowed && message.text().includes(given.allowed))) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => request.url().startsWith(given.url) || complaints.push(`asked ${request.url()}`));
  await page.goto(given.url);
  const seen = await scenarios[process.argv[2]](page, given);
  console.log(JSON.stringify({ ...seen, complaints }));
} finally {
  await browser.close();
}
