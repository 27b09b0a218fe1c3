// What the browser tests share: the browser, people who sign in with the provider, the agent, and the accessibility checker.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { file, load } from "./modules.mjs";

export const task = JSON.parse(process.env.PLACET_CONSOLE_TASK);
export const base = task.base;
// It comes as CommonJS.
const { chromium } = (await load("playwright-core")).default;
const axeSource = readFileSync(file("axe-core/axe.min.js"), "utf8");

export const browser = await chromium.launch({
  executablePath: task.chromium,
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// Everything that a page says to its console but should not: errors, refused scripts and styles.
export const complaints = [];

export async function window_(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.message}`));
  page.on("console", (line) => {
    const text = line.text();
    // The browser reports every answer that is no success; those are asked for here.
    const expected = text.startsWith("Failed to load resource");
    if (line.type() === "error" && !expected && (!base || page.url().startsWith(base))) complaints.push(`${page.url()}: ${text}`);
  });
  page.on("dialog", (dialog) => { complaints.push(`${page.url()}: a dialog: ${dialog.message()}`); dialog.dismiss(); });
  return page;
}

// At the provider: says who they are, and agrees that the console may know.
export async function proveAtProvider(page, name) {
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  const agree = page.locator("form button[type=submit]");
  while (!page.url().startsWith(base)) {
    await page.waitForLoadState();
    if (page.url().startsWith(base)) break;
    await agree.first().click();
    await page.waitForLoadState();
  }
}

export async function signIn(name, options) {
  const page = await window_(options);
  await page.goto(`${base}/`);
  await page.getByRole("link", { name: /^Sign in with/ }).click();
  await proveAtProvider(page, name);
  await page.waitForURL((url) => url.href.startsWith(base));
  await page.getByRole("heading", { level: 1, name: "Inbox" }).waitFor();
  return page;
}

let count = 0;
// The agent asks for a refund, and is told that it waits.
export const refund = (args, more) => ask("refund", args, more);

// The same with any tool of the till.
export async function ask(tool, args, more = {}) {
  count += 1;
  const plan = {
    tool: `till__${tool}`, args, step_id: `step-${count}`, request_id: "req",
    run: { run_id: "run-of-the-console", safety_mode: "destructive" }, ...more,
  };
  const send = () => fetch(`${base}/v1/calls`, {
    method: "POST",
    headers: { authorization: `Bearer ${task.agent}`, "content-type": "application/json" },
    body: JSON.stringify(plan),
  });
  const response = await send();
  const held = await response.json();
  assert.equal(response.status, 202, JSON.stringify(held));
  return { id: held.approval_id, call: held.tool_call_id, again: async () => (await send()).json() };
}

export const order = (note, cents = 4200) => ({
  customer: { name: "Ada Example", account: "DE02 1203 0000 0000 2020 51" },
  lines: [{ item: "Lamp, brass", cents }, { item: "Shade", cents: 900 }],
  note,
});

// A page by its path; one that only a form leads to by what leads there.
export const visit = (page, where) => (typeof where === "string" ? page.goto(base + where) : where(page));

export async function decide(page, word, reason) {
  await page.locator("#decide textarea[name=reason]").fill(reason);
  await page.locator("#decide").getByRole("button", { name: word, exact: true }).click();
  await page.waitForLoadState();
}

// Fails on anything that the accessibility checker calls serious or critical.
export async function accessible(page, name) {
  // Evaluated by the driver, not loaded by the page: the page's own policy stays as strict as it is.
  await page.evaluate(axeSource);
  const report = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const bad = report.violations.filter((violation) => ["serious", "critical", "moderate"].includes(violation.impact));
  const words = bad.map((violation) => `${violation.id} (${violation.impact}): ${violation.nodes.map((node) => node.target.join(" ")).join("; ")} ${violation.nodes[0]?.failureSummary ?? ""}`);
  assert.deepEqual(words, [], `axe on ${name}`);
}

export async function until(probe, what, within = 20_000) {
  const end = Date.now() + within;
  for (;;) {
    const found = await probe();
    if (found) return found;
    assert.ok(Date.now() < end, `in vain: ${what}`);
    await new Promise((again) => setTimeout(again, 100));
  }
}

const results = [];
export async function check(name, body) {
  try {
    await body();
    results.push([true, name]);
    console.log(`ok    ${name}`);
  } catch (error) {
    results.push([false, name]);
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}

export async function finish() {
  await browser.close();
  if (complaints.length > 0) console.log(`FAILED the pages complained:\n${complaints.join("\n")}`);
  const failed = results.filter(([ok]) => !ok).length + (complaints.length > 0 ? 1 : 0);
  console.log(`${results.length - failed} passed, ${failed} failed`);
  process.exit(failed === 0 && results.length > 0 ? 0 : 1);
}
