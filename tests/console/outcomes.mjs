// What the console says of calls that succeeded, failed, ended unknown, were withdrawn or are held by a freeze. Driven by tests/it/console.rs.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { accessible, ask, base, check, decide, finish, signIn, task, until } from "./support.mjs";

const ben = await signIn("ben");
const cleo = await signIn("cleo");
const ana = await signIn("ana");
const phone = await signIn("ben", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 });

const mark = (page) => page.locator("h1 .mark");
const raffle = (note) => ask("raffle", { note });

// A screenshot on a desktop and on a phone, where they are asked for.
async function shot(name, path) {
  await phone.goto(base + path);
  const wide = await phone.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${name} is ${wide} px too wide`);
  await ben.goto(base + path);
  await accessible(ben, name);
  if (!task.shots) return;
  mkdirSync(task.shots, { recursive: true });
  await phone.screenshot({ path: join(task.shots, `${name}-phone.png`), fullPage: true });
  await ben.screenshot({ path: join(task.shots, `${name}-desktop.png`), fullPage: true });
}

// Asks, approves, and waits until the open page says how it ended.
async function approved(note, word) {
  const held = await raffle(note);
  await ben.goto(`${base}/approvals/${held.id}`);
  await decide(ben, "Approve", "as agreed");
  await until(async () => (await mark(ben).innerText()) === word, `it says ${word}`);
  return held;
}

const listed = async (state, held) => {
  await ben.goto(`${base}/?state=${state}`);
  return ben.locator(`tr[data-href="/approvals/${held.id}"]`).count();
};

await check("a success, a failure and an unknown outcome look different and are found by their state", async () => {
  const ends = [];
  for (const [note, word, look, state, sentence] of [
    ["one ticket", "succeeded", "good", "succeeded", "It ran and succeeded."],
    ["fail now", "failed", "bad", "failed", "It was approved and sent, and it failed."],
    ["crash now", "outcome unknown", "warn", "unknown", "Nobody knows whether it took effect."],
  ]) {
    const held = await approved(note, word);
    assert.ok((await mark(ben).getAttribute("class")).split(" ").includes(look), `${word} is ${look}`);
    const text = await ben.locator("main").innerText();
    assert.ok(text.includes(sentence), text);
    assert.match(text, /Your approval is recorded[\s\S]*What ran[\s\S]*Why it was held/);
    assert.doesNotMatch(text, /\bDone\b|exactly will run|Why it waits|consumed|approved and run/);
    assert.equal(await ben.locator(".notice.good").count(), 0, "no page calls it good before it is known");
    ends.push([held, state]);
    await shot(`call-${state}`, `/approvals/${held.id}`);
  }
  for (const [held, own] of ends) {
    for (const state of ["finished", "succeeded", "failed", "unknown", "denied"]) {
      assert.equal(await listed(state, held), state === own || state === "finished" ? 1 : 0, `${own} among ${state}`);
    }
  }
  await shot("finished", "/?state=finished&order=newest");
});

await check("an operator records an unknown outcome on the page, and nobody else is offered that", async () => {
  const held = await approved("crash again", "outcome unknown");
  await cleo.goto(`${base}/approvals/${held.id}`);
  assert.match(await cleo.locator("#outcome").innerText(), /An operator looks at the target/);
  assert.equal(await cleo.locator("#outcome form").count(), 0);
  await ben.locator("#found").selectOption("happened");
  await ben.locator("#evidence").fill("the ticket was printed");
  await ben.getByRole("button", { name: "Record the outcome" }).click();
  await ben.waitForURL(/done=resolve/);
  assert.equal(await mark(ben).innerText(), "succeeded");
});

await check("the agent's owner withdraws a held call, everybody sees it, and the agent is told so", async () => {
  const held = await raffle("not wanted");
  // Who was asked may deny it, and not withdraw it.
  await cleo.goto(`${base}/approvals/${held.id}`);
  assert.equal(await cleo.locator("#withdraw").count(), 0);
  await ana.goto(`${base}/approvals/${held.id}`);
  await ana.locator("#withdraw summary").click();
  await ana.locator("#withdraw-reason").fill("the raffle is cancelled");
  await ana.getByRole("button", { name: "Withdraw the call" }).click();
  await ana.waitForURL(/done=withdraw/);
  assert.equal(await mark(ana).innerText(), "withdrawn");
  await until(async () => (await mark(cleo).innerText()) === "withdrawn", "the other page follows");
  await until(async () => (await cleo.locator("#what").innerText()).includes("would have run"), "all of it follows");
  assert.match(await cleo.locator("main").innerText(), /Withdrawn by ana[\s\S]*What would have run[\s\S]*the raffle is cancelled/);
  const answer = await held.again();
  assert.equal(answer.error?.code ?? answer.error_code, "APPROVAL_WITHDRAWN", JSON.stringify(answer));
  assert.match(answer.error?.message ?? answer.detail, /withdrawn/);
  assert.equal(await listed("withdrawn", held), 1);
  await shot("call-withdrawn", `/approvals/${held.id}`);
  // An operator may as well.
  const other = await raffle("not wanted either");
  await shot("call-waits", `/approvals/${other.id}`);
  await ben.locator("#withdraw summary").click();
  await ben.locator("#withdraw-reason").fill("nobody needs it");
  await ben.getByRole("button", { name: "Withdraw the call" }).click();
  await ben.waitForURL(/done=withdraw/);
});

await check("a freeze is shown where it holds calls, promises nothing, and goes away when it is lifted", async () => {
  const before = await raffle("asked before the freeze");
  await ben.goto(`${base}/calendar`);
  await ben.locator("#name").fill("year end");
  await ben.locator("input[name=lasts]").first().fill("2");
  await ben.locator("textarea[name=reason]").first().fill("the books are closed");
  await ben.locator("form[action='/calendar'] button[type=submit]").click();
  await ben.waitForURL(/\/entries\//);
  const entry = new URL(ben.url()).pathname;
  const during = await raffle("asked in the freeze");
  await shot("inbox-frozen", "/");
  assert.match(await ben.locator("#summary-part").innerText(), /A freeze is in force: year end/);
  await shot("call-frozen", `/approvals/${before.id}`);
  const text = await ben.locator("main").innerText();
  assert.match(text, /A freeze is in force: year end[\s\S]*it may still wait for others[\s\S]*the policies decide once more/);
  assert.doesNotMatch(text, /nobody else is needed/);
  await cleo.goto(`${base}/approvals/${before.id}`);
  await decide(cleo, "Approve", "as agreed");
  await until(async () => (await ben.locator("#people").innerText()).includes("freeze-approvers"), "the policies ask others");
  assert.equal(await mark(ben).innerText(), "waits");
  await ben.goto(`${base}${entry}`);
  await ben.locator("#reason-end").fill("the books are open again");
  await ben.getByRole("button", { name: "End it" }).click();
  await ben.waitForURL(/done=1/);
  for (const path of ["/", `/approvals/${before.id}`, `/approvals/${during.id}`]) {
    await ben.goto(base + path);
    assert.doesNotMatch(await ben.locator("main").innerText(), /freeze is (on|in force)/i, path);
  }
});

await check("a lockdown is shown on every page until it is lifted", async () => {
  const waiting = await raffle("asked before the lockdown");
  const pages = ["/", "/decisions", "/report", "/load", "/grants", "/calendar", "/help"];
  const shown = async (path) => {
    await ben.goto(base + path);
    return /Lockdown: no call runs \(a runaway agent\)\./.test(await ben.locator("main").innerText());
  };
  await ben.goto(`${base}/calendar`);
  await ben.locator("#name").fill("a runaway agent");
  await ben.locator("input[name=lasts]").first().fill("1");
  await ben.getByLabel("Lockdown: no call runs, reads neither, and no approval helps").check();
  await ben.locator("textarea[name=reason]").first().fill("it writes to everybody");
  await ben.locator("form[action='/calendar'] button[type=submit]").click();
  await ben.waitForURL(/\/entries\//);
  const entry = new URL(ben.url()).pathname;
  for (const path of pages) assert.ok(await shown(path), path);
  await ben.goto(`${base}/approvals/${waiting.id}`);
  const text = await ben.locator("main").innerText();
  assert.match(text, /does not run before the lockdown ends/);
  assert.doesNotMatch(text, /nobody else is needed/);
  await shot("lockdown", "/");
  await shot("lockdown-entry", entry);
  await accessible(ben, "a page in a lockdown");
  await ben.goto(base + entry);
  await ben.locator("#reason-end").fill("it is stopped");
  await ben.getByRole("button", { name: "End it" }).click();
  await ben.waitForURL(/done=1/);
  for (const path of pages) assert.ok(!(await shown(path)), path);
});

await check("a lockdown of one adapter is not said to stop every call", async () => {
  await ben.goto(`${base}/calendar`);
  await ben.locator("#name").fill("only the till");
  await ben.locator("#adapters").fill("till");
  await ben.locator("input[name=lasts]").first().fill("1");
  await ben.getByLabel("Lockdown: no call runs, reads neither, and no approval helps").check();
  await ben.locator("textarea[name=reason]").first().fill("it writes to everybody");
  await ben.locator("form[action='/calendar'] button[type=submit]").click();
  await ben.waitForURL(/\/entries\//);
  const entry = new URL(ben.url()).pathname;
  for (const path of ["/", entry]) {
    await ben.goto(base + path);
    assert.match(await ben.locator("main").innerText(), /Lockdown: no call of till runs/, path);
  }
  await shot("lockdown-adapter", "/");
  await ben.goto(base + entry);
  await ben.locator("#reason-end").fill("it is stopped");
  await ben.getByRole("button", { name: "End it" }).click();
  await ben.waitForURL(/done=1/);
});

await check("a refused form keeps the navigation and what was typed, and a path that does not exist is a page", async () => {
  await cleo.goto(`${base}/break-glass`);
  await cleo.locator("#ticket").fill("INC-4711");
  await cleo.locator("form[action='/break-glass'] textarea[name=reason]").fill("the till is on fire");
  await cleo.locator("form[action='/break-glass'] button[type=submit]").click();
  await cleo.getByRole("heading", { level: 1, name: "This is not allowed" }).waitFor();
  await cleo.getByRole("navigation", { name: "Console" }).getByRole("link", { name: "Inbox" }).waitFor();
  assert.equal(await cleo.locator("#again input[name=ticket]").inputValue(), "INC-4711");
  assert.equal(await cleo.locator("#again textarea[name=reason]").inputValue(), "the till is on fire");
  await accessible(cleo, "a refused form");
  await shot("unknown-path", "/no/such/page");
  assert.match(await ben.locator("main").innerText(), /There is nothing here for you/);
  await ben.getByRole("navigation", { name: "Console" }).waitFor();
});

await check("decisions are listed with filters, and each says why it came out so", async () => {
  await shot("decisions", "/decisions?verdict=hold&policy=till-raffle");
  const first = ben.locator("tbody tr").first();
  assert.match(await first.innerText(), /till\/raffle[\s\S]*held for people[\s\S]*till-raffle/);
  await ben.goto(`${base}/decisions?policy=no-such-policy`);
  assert.match(await ben.locator("main").innerText(), /There are no such decisions/);
  await ben.goto(`${base}/decisions?verdict=hold&tool=till/raffle&policy=till-raffle`);
  await ben.locator("tbody tr a").first().click();
  await ben.getByRole("heading", { name: "Why" }).waitFor();
  assert.match(await ben.locator("main").innerText(), /Policy till-raffle stands against it[\s\S]*The till gives something away/);
  await shot("decision", new URL(ben.url()).pathname);
  await cleo.goto(ben.url());
  assert.match(await cleo.locator("main").innerText(), /There is nothing here for you/);
});

await finish();
