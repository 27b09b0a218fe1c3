// An external approver at the approval service in real Chromium: somebody of the tenant that a credit goes to. Driven by tests/it/credit.rs.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { accessible, base, check, decide, finish, task, window_ } from "./support.mjs";

// Where development tokens are accepted people open a link that works once, and choose a name.
const link = () => JSON.parse(execFileSync(task.link[0], task.link.slice(1), { env: {}, encoding: "utf8" })).url;

async function enter(who, options) {
  const page = await window_(options);
  await page.goto(link());
  assert.equal(page.url(), `${base}/sign-in?to=%2F`, "the code is in the address");
  await page.getByRole("button", { name: `Sign in as ${who}`, exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Inbox" }).waitFor();
  return page;
}

async function shot(page, name) {
  if (!task.shots) return;
  mkdirSync(task.shots, { recursive: true });
  await page.screenshot({ path: join(task.shots, `${name}.png`), fullPage: true });
}

const send = (step) => fetch(`${base}/v1/calls`, {
  method: "POST",
  headers: { authorization: `Bearer ${task.agent}`, "content-type": "application/json" },
  body: JSON.stringify({ ...task.call, step_id: step }),
}).then((response) => response.json());

await check("without a link nobody is offered, and a link that was opened before says so", async () => {
  for (const scheme of ["light", "dark"]) {
    const page = await window_({ colorScheme: scheme });
    await page.goto(`${base}/`);
    assert.match(await page.locator("main").innerText(), /Development sign-in[\s\S]*placet console/);
    await accessible(page, `the sign-in without a link, ${scheme}`);
    await shot(page, `sign-in-without-link-${scheme}`);
    const once = link();
    await page.goto(once);
    await page.getByRole("button", { name: "Sign in as gil of globex", exact: true }).waitFor();
    await accessible(page, `the sign-in with a link, ${scheme}`);
    await shot(page, `sign-in-with-link-${scheme}`);
    const other = await window_({ colorScheme: scheme });
    await other.goto(once);
    assert.match(await other.locator("main").innerText(), /not valid any more/);
    assert.equal(await other.getByRole("button", { name: /^Sign in as/ }).count(), 0);
    assert.ok(!other.url().includes("code="), other.url());
    await accessible(other, `the sign-in with a used link, ${scheme}`);
    await shot(other, `sign-in-used-link-${scheme}`);
    await page.setViewportSize({ width: 360, height: 740 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${wide} px too wide`);
    await page.context().close();
    await other.context().close();
  }
});

const call = await send("browser-1");
const path = `/approvals/${call.approval_id}`;
// What is the asking tenant's own: its groups and people, the account number, budget and target.
const hidden = ["finance-leads", "lena", "olga", "DE0212", "budget", "Timeline", "gate-destructive"];
const gil = await enter("gil of globex");
const lena = await enter("lena of acme");

await check("an external approver finds what asks them in their own inbox", async () => {
  const row = gil.locator(`tr[data-href="${path}"]`);
  await row.waitFor();
  const text = await row.innerText();
  assert.match(text, /yours[\s\S]*returned goods[\s\S]*globex\/credit-approvers/);
  for (const word of hidden) assert.ok(!text.includes(word), `${word}: ${text}`);
});

await check("the page shows their part, who asks, and that the rest is not theirs", async () => {
  await gil.goto(base + path);
  const text = await gil.locator("main").innerText();
  assert.match(text, /tenant acme[\s\S]*nothing else of it/);
  assert.match(text, /250000[\s\S]*masked|masked[\s\S]*250000/);
  assert.match(text, /your agreement counts for globex[\s\S]*known to tenant acme alone/i);
  for (const word of hidden) assert.ok(!text.includes(word), `${word}: ${text}`);
  assert.match(await gil.locator("#people").innerText(), /0 of 1 from globex\/credit-approvers[\s\S]*None yet/);
  for (const name of ["Change the arguments", "Propose a standing grant"]) {
    assert.equal(await gil.getByRole("link", { name }).count(), 0, name);
  }
});

await check("neither the timeline nor an edit nor a grant opens for an external approver", async () => {
  for (const [to, statuses] of [[`/calls/${call.tool_call_id}/timeline`, [404]], [`${path}/edit`, [403, 404]], [`${path}/grant`, [403, 404]]]) {
    const status = (await gil.goto(base + to)).status();
    const form = await gil.locator("main form textarea").count();
    assert.ok(statuses.includes(status) || form === 0, `${to}: ${status}`);
    const text = await gil.locator("main").innerText();
    for (const word of hidden) assert.ok(!text.includes(word), `${to}, ${word}: ${text}`);
  }
});

await check("others of that tenant see nothing", async () => {
  const zoe = await enter("zoe of globex");
  assert.equal(await zoe.locator(`tr[data-href="${path}"]`).count(), 0);
  assert.equal((await zoe.goto(base + path)).status(), 404);
  await zoe.context().close();
});

for (const scheme of ["light", "dark"]) {
  await check(`axe finds nothing on a external's pages, ${scheme}, and they fit a phone`, async () => {
    const page = await enter("gil of globex", { colorScheme: scheme });
    await accessible(page, `a external's inbox, ${scheme}`);
    await page.goto(base + path);
    await accessible(page, `a external's page, ${scheme}`);
    await shot(page, `external-approver-${scheme}`);
    await page.setViewportSize({ width: 360, height: 740 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${wide} px too wide`);
    await page.goto(`${base}/delegations`);
    assert.match(await page.locator("main").innerText(), /what other tenants ask[\s\S]*not handed over/);
    await page.context().close();
  });
}

await check("both tenants agree in two windows, and neither sees the other's decision beside their own part", async () => {
  await gil.goto(base + path);
  await lena.goto(base + path);
  await decide(lena, "Approve", "the goods came back");
  await decide(gil, "Approve", "our account, our order");
  await gil.locator("h1 .mark", { hasText: /sent/i }).waitFor();
  const text = await gil.locator("main").innerText();
  assert.ok(text.includes("our account, our order"), text);
  assert.ok(!text.includes("the goods came back"), text);
  await lena.locator("#people").getByText("our account, our order").waitFor();
  assert.match(await lena.locator("#people").innerText(), /gil of tenant globex/);
  const answer = await send("browser-1");
  assert.equal(answer.status, "succeeded", JSON.stringify(answer));
});

await finish();
