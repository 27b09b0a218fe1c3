// People at the approval service in real Chromium, against a running Placet and a real OpenID provider. Driven by tests/it/console.rs.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { accessible, ask, base, check, complaints, decide, finish, order, proveAtProvider, refund, signIn, task, until, visit, window_ } from "./support.mjs";

const effects = () => { try { return readFileSync(task.witness, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line)); } catch { return []; } };
const state = (page) => page.locator("h1 .mark").innerText();

// A month that lies ahead, and less than a year.
const soon = new Date(Date.now() + 45 * 86_400_000).toISOString().slice(0, 7);

const ben = await signIn("ben");
const cleo = await signIn("cleo");
const ana = await signIn("ana");
const signedInAt = Date.now();

await check("who is not signed in sees nothing but the sign-in, and comes back to where they wanted to go", async () => {
  const page = await window_();
  await page.goto(`${base}/calendar?month=2026-12`);
  assert.ok(page.url().startsWith(`${base}/sign-in?to=`), page.url());
  await page.getByRole("link", { name: /^Sign in with/ }).click();
  await proveAtProvider(page, "ben");
  await page.waitForURL(`${base}/calendar?month=2026-12`);
  await page.context().close();
});

await check("the session's cookie is for no one's script", async () => {
  const cookies = await ben.context().cookies(base);
  const session = cookies.find((cookie) => cookie.name === "placet");
  assert.deepEqual([session.httpOnly, session.sameSite, session.path, session.expires], [true, "Lax", "/", -1]);
  assert.equal(await ben.evaluate(() => document.cookie), "");
});

await check("hold, four eyes, two approvals, and the execution is seen in both windows without touching them", async () => {
  const before = effects().length;
  const held = await refund(order("two people"));
  const row = (page) => page.locator(`tr[data-href="/approvals/${held.id}"]`);
  // It appears by itself in both inboxes.
  await row(ben).waitFor();
  await row(cleo).waitFor();
  await ben.goto(`${base}/approvals/${held.id}`);
  await cleo.goto(`${base}/approvals/${held.id}`);
  assert.match(await ben.locator("#what").innerText(), /Ada Example[\s\S]*masked[\s\S]*Lamp, brass/);
  assert.ok(!(await ben.content()).includes("1203 0000"), "the account is masked");

  // Who answers for the agent sees it and cannot decide.
  await ana.goto(`${base}/approvals/${held.id}`);
  assert.equal(await ana.locator("#decide").getByRole("button", { name: "Approve", exact: true }).count(), 0);
  assert.match(await ana.locator("#decide").innerText(), /cannot approve/i);

  await decide(ben, "Approve", "the order is known to me");
  assert.equal(await state(ben), "waits");
  await cleo.locator("#people").getByText("the order is known to me").waitFor();
  assert.match(await cleo.locator("#people").innerText(), /1 of 2/);
  assert.equal(effects().length, before, "one is not enough");
  // Nobody decides twice.
  assert.equal(await ben.locator("#decide").getByRole("button", { name: "Approve", exact: true }).count(), 0);

  await decide(cleo, "Approve", "I agree");
  const result = await until(async () => { const answer = await held.again(); return answer.status === "succeeded" && answer; }, "it is executed");
  assert.equal(result.output.structured?.refunded_cents ?? result.output.refunded_cents, 5100, JSON.stringify(result));
  for (const page of [ben, cleo]) await page.locator("#outcome").getByText("5100", { exact: true }).waitFor();
  assert.equal(effects().length, before + 1);
});

await check("a denial ends it, and the agent is told so", async () => {
  const held = await refund(order("no"));
  await ben.goto(`${base}/approvals/${held.id}`);
  await decide(ben, "Deny", "this order does not exist");
  assert.equal(await state(ben), "denied");
  const answer = await held.again();
  assert.equal(answer.error_code ?? answer.error?.code, "APPROVAL_DENIED", JSON.stringify(answer));
});

await check("narrower arguments show as a difference, need everybody again, and the agent learns of them", async () => {
  const held = await refund(order("too much", 90_000));
  await cleo.goto(`${base}/approvals/${held.id}`);
  await ben.goto(`${base}/approvals/${held.id}/edit`);
  const text = await ben.locator("#args").inputValue();
  assert.ok(text.includes("[sensitive]") && !text.includes("1203"), text);
  await ben.locator("#args").fill("{ broken");
  await ben.locator("#reason").fill("half of it");
  await ben.getByRole("button", { name: /^Propose these/ }).click();
  await ben.locator("#problems").getByText("not JSON").waitFor();
  assert.equal(await ben.locator("#args").inputValue(), "{ broken");
  await ben.locator("#args").fill(text.replace("90000", "\"much\""));
  await ben.getByRole("button", { name: /^Propose these/ }).click();
  await ben.locator("#problems").waitFor();
  await ben.locator("#args").fill(text.replace("90000", "45000"));
  await ben.getByRole("button", { name: /^Propose these/ }).click();
  await ben.waitForURL(`${base}/approvals/${held.id}?done=edit`);
  // The other window was on the old proposal: it follows by itself.
  await cleo.locator("#what del").first().waitFor();
  assert.match(await cleo.locator("#what").innerText(), /90000[\s\S]*45000/);
  await decide(cleo, "Approve", "half is fair");
  const answer = await until(async () => { const answer = await held.again(); return answer.status === "succeeded" && answer; }, "it is executed");
  assert.ok(JSON.stringify(answer.edited_args).includes("45000"), JSON.stringify(answer));
  const done = effects().at(-1);
  assert.equal(done.lines[0].cents, 45_000);
  assert.equal(done.customer.account, "DE02 1203 0000 0000 2020 51", "what was masked kept its value");
});

await check("a stale page decides nothing and shows how it stands now", async () => {
  const held = await refund(order("stale", 8_000));
  // Without script the page does not follow, and everything works all the same.
  const still = await signIn("cleo", { javaScriptEnabled: false });
  await still.goto(`${base}/approvals/${held.id}`);
  await ben.goto(`${base}/approvals/${held.id}/edit`);
  await ben.locator("#args").fill((await ben.locator("#args").inputValue()).replace("8000", "7000"));
  await ben.locator("#reason").fill("a little less");
  await ben.getByRole("button", { name: /^Propose these/ }).click();
  await ben.waitForURL(/done=edit/);
  await still.locator("#decide textarea").fill("I agree to 8000");
  const answered = still.waitForResponse((response) => response.request().method() === "POST");
  await still.locator("#decide").getByRole("button", { name: "Approve", exact: true }).click();
  assert.equal((await answered).status(), 409);
  const text = await still.locator("main").innerText();
  assert.match(text, /This changed while you were looking at it[\s\S]*Nothing was decided/);
  assert.match(text, /7000/);
  assert.equal(await still.locator("#decide textarea").inputValue(), "I agree to 8000");
  // Now that it is shown, the same words decide, still without script.
  await still.locator("#decide").getByRole("button", { name: "Approve", exact: true }).click();
  await still.waitForURL(/done=approve/);
  await until(async () => (await held.again()).status === "succeeded", "it is executed");
  await still.context().close();
});

await check("hostile arguments, reasons and names are text", async () => {
  const attack = `"><img src=x onerror=alert(1)><script>alert(2)</script></textarea>'`;
  const held = await refund({ ...order(attack), customer: { name: attack, account: attack } });
  await ben.goto(`${base}/`);
  await ben.locator(`tr[data-href="/approvals/${held.id}"]`).waitFor();
  await ben.goto(`${base}/?q=${encodeURIComponent(attack)}`);
  assert.equal(await ben.locator("#search").inputValue(), attack);
  await ben.goto(`${base}/approvals/${held.id}`);
  assert.ok((await ben.locator("#what").innerText()).includes(attack));
  await decide(ben, "Deny", attack);
  assert.ok((await ben.locator("#people").innerText()).includes(attack));
  await ben.goto(`${base}/approvals/${held.id}/edit`);
  await ben.goto(`${base}/calls/${held.call}/timeline`);
  for (const page of [ben, cleo]) {
    assert.equal(await page.locator("img, main script").count(), 0);
  }
  // The page's own policy stops what no test thought of.
  const ran = await ben.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "globalThis.ran = true";
    document.body.append(script);
    return Boolean(globalThis.ran);
  }).catch(() => false);
  assert.equal(ran, false);
  // That refusal was asked for, and is the only one.
  await until(() => complaints.length > 0, "the browser says that it refused a script");
  assert.match(complaints.pop(), /Content Security Policy directive 'script-src 'self''/);
});

await check("hostile names and descriptions of operations are text, and a name that is markup is none", async () => {
  const held = await ask("raffle", { note: "one ticket" });
  await ben.goto(`${base}/approvals/${held.id}`);
  assert.match(await ben.locator("#head").innerText(), /Draws a winner\. "><img src=x onerror=alert\(5\)><\/textarea><script>alert\(6\)/);
  const pages = ["/", `/approvals/${held.id}/edit`, `/approvals/${held.id}/grant`, `/calls/${held.call}/timeline`, `/?q=${encodeURIComponent("<img src=x>")}`];
  for (const path of [`/approvals/${held.id}`, ...pages]) {
    await ben.goto(base + path);
    assert.equal(await ben.locator("img, main script").count(), 0, path);
  }
  await ben.goto(`${base}/`);
  await ben.locator(`#pick-${held.id}`).check();
  await ben.locator("#together").click();
  await ben.getByText("Draws a winner.").waitFor();
  assert.equal(await ben.locator("img, main script").count(), 0);
  // The server offers an operation whose name is markup. It is no one's.
  const named = await fetch(`${base}/v1/calls`, {
    method: "POST", headers: { authorization: `Bearer ${task.agent}`, "content-type": "application/json" },
    body: JSON.stringify({ tool: `till__"><img src=x onerror=alert(7)>`, args: { note: "x" }, step_id: "hostile", request_id: "req", run: { run_id: "run-of-the-console" } }),
  });
  assert.ok(named.status >= 400 && named.status < 500, `${named.status}`);
  assert.equal(named.headers.get("content-type").includes("html"), false);
  await ben.goto(`${base}/approvals/${held.id}`);
  await decide(ben, "Deny", "no raffle");
});

// A form for a call, on a page of a server that is not ours, sent by the person: what the console is asked, and what it answers.
async function forged(host, held) {
  await ben.goto(`${base}/approvals/${held.id}`);
  const digest = await ben.locator("input[name=digest]").first().inputValue();
  const token = await ben.locator("#decide input[name=form_token]").inputValue();
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html" });
    response.end(`<!doctype html><title>t</title><form method=post action="${base}/approvals/${held.id}/decision">
      <input name=form_token value="${token}"><input name=digest value="${digest}">
      <input name=reason value=forged><button name=decision value=approve>go</button></form>`);
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const origin = `http://${host}:${server.address().port}`;
  const page = await ben.context().newPage();
  await page.goto(`${origin}/`);
  const posted = page.waitForRequest((request) => request.method() === "POST");
  await page.getByRole("button").click();
  const request = await posted, status = (await request.response()).status();
  const headers = await request.allHeaders();
  assert.equal(headers.origin, origin);
  // It comes no further than the API, which answers as it answers programs.
  assert.equal(status, 403);
  await page.getByText("scripts of that `Origin` may not call this service").waitFor();
  await page.close();
  server.closeAllConnections();
  server.close();
  await ben.reload();
  assert.equal(await state(ben), "waits");
  assert.match(await ben.locator("#people").innerText(), /None yet/);
  return { cookie: headers.cookie ?? "", digest };
}

await check("a form of another origin of the same site is refused by its origin, although it has cookie, token and digest", async () => {
  const held = await refund(order("forged next API"));
  // Another port of the same host is the same site: the browser sends the session's cookie along.
  const { cookie, digest } = await forged("127.0.0.1", held);
  assert.match(cookie, /placet=/, "it was sent as the person");
  // From the right place without the token, and with one that is not of this session.
  for (const token of [null, "x".repeat(43)]) {
    const [refused, words] = await ben.evaluate(async ([id, digest, token]) => {
      const form = new URLSearchParams({ digest, reason: "forged", decision: "approve" });
      if (token) form.set("form_token", token);
      const answer = await fetch(`/approvals/${id}/decision`, { method: "POST", body: form });
      return [answer.status, await answer.text()];
    }, [held.id, digest, token]);
    assert.equal(refused, 403);
    assert.match(words, /not one of this session/);
  }
  await ben.reload();
  assert.match(await ben.locator("#people").innerText(), /None yet/);
  await decide(ben, "Deny", "it was only a try");
});

await check("a form of another site comes without the session, and does nothing", async () => {
  const held = await refund(order("forged"));
  const { cookie } = await forged("localhost", held);
  assert.doesNotMatch(cookie, /placet=/);
  await decide(ben, "Deny", "it was only a try");
});

await check("several calls are looked at and decided together", async () => {
  const some = [await refund(order("one of three")), await refund(order("two of three")), await refund(order("three of three", 90_000))];
  // One of them is not any more what the agent asked for.
  await cleo.goto(`${base}/approvals/${some[2].id}/edit`);
  await cleo.locator("#args").fill((await cleo.locator("#args").inputValue()).replace("90000", "30000"));
  await cleo.locator("#reason").fill("a third of it");
  await cleo.getByRole("button", { name: /^Propose these/ }).click();
  await cleo.waitForURL(/done=edit/);
  await ben.goto(`${base}/`);
  for (const held of some) await ben.locator(`#pick-${held.id}`).check();
  await ben.getByRole("button", { name: "Look at 3 chosen together" }).click();
  assert.match(await ben.locator("main").innerText(), /one of three[\s\S]*two of three[\s\S]*three of three/);
  const edited = ben.locator("section.item", { hasText: some[2].id });
  assert.match(await edited.innerText(), /edited[\s\S]*cannot be undone[\s\S]*Ends[\s\S]*cleo changed the arguments[\s\S]*90000[\s\S]*30000[\s\S]*a third of it/);
  assert.match(await edited.innerText(), /2 people of approvers must agree[\s\S]*approved by cleo[\s\S]*nobody else is needed/);
  assert.equal(await ben.locator("section.item del").count(), 1, "the others are as they were asked for");
  assert.match(await ben.locator("main").innerText(), /1 call of these runs with changed arguments/);
  const items = await ben.locator("input[name=item]").evaluateAll((fields) => fields.map((field) => field.value));
  await accessible(ben, "together");
  await ben.locator("#reason").fill("a bad batch");
  await ben.getByRole("button", { name: "Deny all 3" }).click();
  await ben.getByText("3 decisions are recorded").waitFor();
  // Of each is recorded what was shown.
  for (const held of some) {
    const [, shown] = items.map((item) => item.split(" ")).find(([id]) => id === held.id);
    await ben.goto(`${base}/calls/${held.call}/timeline`);
    const step = ben.locator("ol.timeline > li", { hasText: "Voted" }).last();
    assert.ok((await step.textContent()).includes(shown), `${held.id}: ${await step.textContent()}`);
  }
});

await check("what others do is told to who does not look, and neither what is open nor the focus is lost by it", async () => {
  const held = await refund(order("told"));
  await ben.goto(`${base}/approvals/${held.id}`);
  await ben.locator("#digests summary").click();
  await cleo.goto(`${base}/approvals/${held.id}`);
  await decide(cleo, "Approve", "the first of two");
  await ben.locator("#people").getByText("the first of two").waitFor();
  await ben.locator("#live", { hasText: "Agreement: 1 of 2 from approvers" }).waitFor();
  assert.equal(await ben.locator("#digests").evaluate((details) => details.open), true);
  assert.equal(await ben.evaluate(() => document.activeElement.tagName), "SUMMARY");
  // The same on the timeline, where each step can be opened.
  await cleo.goto(`${base}/calls/${held.call}/timeline`);
  const steps = cleo.locator("ol.timeline > li");
  const before = await steps.count();
  await steps.first().locator("summary").click();
  await decide(ben, "Deny", "the second of two");
  await until(async () => (await steps.count()) > before, "the timeline goes on");
  assert.equal(await steps.first().locator("details").evaluate((details) => details.open), true);
});

await check("the page of a refused decision lives on, and its address leads to the call", async () => {
  const held = await refund(order("refused"));
  await ben.goto(`${base}/approvals/${held.id}`);
  await ben.locator("#decide input[name=digest]").evaluate((field) => { field.value = field.value.replace(/.$/, (last) => (last === "0" ? "1" : "0")); });
  await decide(ben, "Approve", "on an old page");
  await ben.getByRole("heading", { name: "This changed while you were looking at it" }).waitFor();
  assert.equal(ben.url(), `${base}/approvals/${held.id}/decision`);
  await cleo.goto(`${base}/approvals/${held.id}`);
  await decide(cleo, "Approve", "seen by itself");
  await ben.locator("#people").getByText("seen by itself").waitFor();
  await ben.goto(ben.url());
  assert.equal(ben.url(), `${base}/approvals/${held.id}`);
  await decide(ben, "Deny", "and no");
});

await check("the keys can be switched off, and stay off in this browser", async () => {
  await ben.goto(`${base}/help`);
  await ben.getByLabel("Listen to these keys").uncheck();
  await ben.goto(`${base}/`);
  const focused = async (key) => { await ben.keyboard.press(key); return ben.evaluate(() => document.activeElement.id); };
  assert.equal(await focused("/"), "");
  await ben.goto(`${base}/help`);
  assert.equal(await ben.getByLabel("Listen to these keys").isChecked(), false);
  await ben.getByLabel("Listen to these keys").check();
  await ben.goto(`${base}/`);
  assert.equal(await focused("/"), "search");
});

await check("the keyboard moves, opens and never decides", async () => {
  const held = await refund(order("by keys"));
  await ben.goto(`${base}/?q=${held.id}`);
  await ben.locator(`tr[data-href="/approvals/${held.id}"]`).waitFor();
  await ben.keyboard.press("j");
  await ben.keyboard.press("Enter");
  await ben.waitForURL(`${base}/approvals/${held.id}`);
  await ben.keyboard.press("a");
  assert.equal(await ben.evaluate(() => document.activeElement.id), "reason");
  // An update that comes while somebody writes takes neither the words nor the focus.
  await ben.keyboard.type("because");
  await cleo.goto(`${base}/approvals/${held.id}`);
  await decide(cleo, "Approve", "first");
  await ben.locator("#people").getByText("first").waitFor();
  assert.equal(await ben.locator("#reason").inputValue(), "because");
  assert.equal(await ben.evaluate(() => document.activeElement.id), "reason");
  await decide(ben, "Deny", "after all not");
  await ben.keyboard.press("?");
  await ben.waitForURL(`${base}/help`);
});

await check("what nobody decides on expires by itself, on the open page too, and the agent is told", async () => {
  const before = effects().length;
  const held = await ask("voucher", { note: "nobody looks" });
  await ben.goto(`${base}/approvals/${held.id}`);
  assert.equal(await state(ben), "waits");
  assert.match(await ben.locator("#why").innerText(), /It ends unanswered after 8 s/);
  // Nobody touches the page.
  await ben.locator("h1 .mark", { hasText: "expired" }).waitFor();
  assert.match(await ben.locator("#decide").innerText(), /Nobody decided in time/);
  assert.equal(await ben.locator("#decide").getByRole("button").count(), 0);
  const answer = await held.again();
  assert.equal(answer.error_code, "APPROVAL_EXPIRED", JSON.stringify(answer));
  await ben.goto(`${base}/?state=expired`);
  await ben.locator(`tr[data-href="/approvals/${held.id}"]`).waitFor();
  await accessible(ben, "expired calls");
  await ben.goto(`${base}/calls/${held.call}/timeline`);
  assert.match(await ben.locator("main").innerText(), /expired/i);
  assert.equal(effects().length, before, "it did not run");
});

await check("when the first group is silent another is asked, sees it appear, and decides in its place", async () => {
  const emma = await signIn("emma");
  const held = await ask("discount", { note: "half price" });
  const row = (page) => page.locator(`tr[data-href="/approvals/${held.id}"]`);
  await ben.goto(`${base}/?q=${held.id}`);
  await row(ben).waitFor();
  await cleo.goto(`${base}/approvals/${held.id}`);
  assert.match(await cleo.locator("#people").innerText(), /Unless it is decided, directors is asked too, in \d+ s/);
  assert.match(await cleo.locator("#why").innerText(), /After 6 s of silence 1 person of directors may agree instead/);
  // Not theirs yet: neither in their inbox nor by its address.
  assert.equal(await row(emma).count(), 0);
  const early = await emma.context().newPage();
  assert.equal((await early.goto(`${base}/approvals/${held.id}`)).status(), 404);
  await early.close();
  // It comes by itself.
  await row(emma).waitFor();
  assert.match(await row(emma).innerText(), /yours[\s\S]*escalated/);
  assert.match(await row(emma).innerText(), /directors/);
  await cleo.locator("#people").getByText("directors").first().waitFor();
  await row(ben).getByText("escalated").waitFor();
  await emma.goto(`${base}/approvals/${held.id}`);
  assert.match(await emma.locator("#decide").innerText(), /nobody else is needed/);
  await accessible(emma, "an escalated call");
  await decide(emma, "Approve", "they are all at lunch");
  await until(async () => (await held.again()).status === "succeeded", "it is executed");
  assert.deepEqual(effects().at(-1), { tool: "discount", note: "half price" });
  await emma.goto(`${base}/calls/${held.call}/timeline`);
  assert.match(await emma.locator("main").innerText(), /directors is asked/);
  await emma.context().close();
});

await check("when the tool is no longer what was reviewed, what waits for it is void, and an agreement given before runs nothing", async () => {
  const before = effects().length;
  const held = await ask("gift", { note: "a scarf" });
  await ben.goto(`${base}/approvals/${held.id}`);
  await cleo.goto(`${base}/approvals/${held.id}`);
  await decide(cleo, "Approve", "a scarf is fine");
  assert.equal(await state(ben), "waits");
  writeFileSync(`${task.witness}.drift`, "");
  // The page says so by itself, and why.
  await ben.locator("h1 .mark", { hasText: "void" }).waitFor();
  assert.match(await ben.locator("#head").innerText(), /the tool changed upstream since it was reviewed/);
  assert.equal(await ben.locator("#decide").getByRole("button", { name: "Approve", exact: true }).count(), 0);
  await accessible(ben, "a void call");
  await ben.goto(`${base}/?state=void`);
  assert.match(await ben.locator(`tr[data-href="/approvals/${held.id}"]`).innerText(), /the tool changed upstream since it was reviewed/);
  const plan = await held.again();
  assert.notEqual(plan.status, "succeeded", JSON.stringify(plan));
  assert.equal(effects().length, before, "it did not run");
});

await check("a call that wants a fresh sign-in asks for it, comes back to the same page, and only then takes a yes", async () => {
  const page = await signIn("cleo");
  const held = await ask("payout", { note: "the drawer" });
  // Anyone who has just signed in is fresh enough, and the page does not ask.
  await page.goto(`${base}/approvals/${held.id}`);
  assert.equal(await page.getByRole("link", { name: "Sign in again" }).count(), 0);
  assert.match(await page.locator("#why").innerText(), /proved who they are within the last 60 s/);
  await page.context().close();
  // Ben has been here for longer than a minute.
  await until(() => Date.now() - signedInAt > 62_000, "a minute is over", 70_000);
  await ben.goto(`${base}/approvals/${held.id}`);
  assert.equal(await ben.locator("#decide").getByRole("button", { name: "Approve", exact: true }).count(), 0);
  assert.equal(await ben.locator("#decide").getByRole("button", { name: "Deny", exact: true }).count(), 1, "saying no needs no fresh proof");
  await accessible(ben, "a call that wants a fresh sign-in");
  // A form that says yes all the same is refused, and nothing is decided.
  const forced = await ben.evaluate(async (id) => {
    const form = new URLSearchParams({ reason: "forced", decision: "approve" });
    for (const name of ["form_token", "digest"]) form.set(name, document.querySelector(`#decide input[name=${name}]`).value);
    return (await fetch(`/approvals/${id}/decision`, { method: "POST", body: form })).status;
  }, held.id);
  assert.ok(forced >= 400, `${forced}`);
  await ben.getByRole("link", { name: "Sign in again" }).click();
  await ben.locator("input[name=login]").waitFor();
  assert.ok(!ben.url().startsWith(base), "the provider asks again, although it knows the person");
  await proveAtProvider(ben, "ben");
  await ben.waitForURL(`${base}/approvals/${held.id}?done=fresh`);
  assert.match(await ben.locator("main").innerText(), /You have signed in again/);
  await decide(ben, "Approve", "it is me");
  await until(async () => (await held.again()).status === "succeeded", "it is executed");
  assert.deepEqual(effects().at(-1), { tool: "payout", note: "the drawer" });
});

const entries = {};
await check("a freeze, a delegation, an emergency and a grant are arranged, shown and ended", async () => {
  await ben.goto(`${base}/calendar`);
  await ben.locator("#name").fill("Year-end <close>");
  await ben.locator("#starts").fill(`${soon}-15T00:00`);
  await ben.locator("#reason").fill("the books");
  await ben.getByRole("button", { name: "Set the freeze" }).click();
  await ben.getByRole("heading", { level: 1, name: /Year-end <close>/ }).waitFor();
  await ben.goto(`${base}/calendar?month=${soon}`);
  await ben.getByRole("link", { name: "Year-end <close>" }).first().click();
  await ben.locator("#reason-end").fill("no need");
  await ben.getByRole("button", { name: "End it" }).click();
  await ben.waitForURL(/done=1/);

  await ben.goto(`${base}/calendar`);
  await ben.locator("#name").fill("Release week");
  await ben.locator("#starts").fill(`${soon}-20T00:00`);
  await ben.locator("#lasts").fill("4");
  await ben.locator("#reason").fill("the new till goes live");
  await ben.getByRole("button", { name: "Set the freeze" }).click();
  await ben.getByRole("heading", { level: 1, name: /Release week/ }).waitFor();
  entries.freeze = new URL(ben.url()).pathname;

  await ben.goto(`${base}/break-glass`);
  await ben.locator("#ticket").fill("INC-7");
  await ben.locator("#reason").fill("the till is on fire");
  await ben.getByRole("button", { name: "Declare it" }).click();
  await ben.getByRole("heading", { level: 1, name: /INC-7/ }).waitFor();
  entries["emergency"] = new URL(ben.url()).pathname;
  await cleo.goto(ben.url());
  await cleo.locator("#reason-decide").fill("I see the smoke");
  await cleo.getByRole("button", { name: "Agree" }).click();
  await cleo.waitForURL(/done=1/);
  assert.match(await cleo.locator("h1").innerText(), /in force/);
  // Anyone who may not end it is told so; a form that says it all the same changes nothing.
  assert.equal(await cleo.getByRole("button", { name: "End it" }).count(), 0);
  assert.match(await cleo.locator("#acts").innerText(), /don't have permission to end this/);
  await accessible(cleo, "an entry");
  const token = await cleo.locator("input[name=form_token]").first().inputValue();
  const forced = await cleo.evaluate(async (token) => {
    const form = new URLSearchParams({ form_token: token, act: "end", reason: "it is out" });
    const answer = await fetch(location.pathname, { method: "POST", body: form });
    return [answer.status, await answer.text()];
  }, token);
  assert.equal(forced[0], 403);
  assert.match(forced[1], /Nothing was changed/);
  await ben.locator("#reason-end").fill("it is out");
  await ben.getByRole("button", { name: "End it" }).click();
  await ben.getByText("review due").first().waitFor();

  await ben.goto(`${base}/delegations`);
  await ben.locator("#to").fill("dora");
  await ben.locator("#groups").fill("approvers");
  await ben.locator("#reason").fill("away on Friday");
  await ben.getByRole("button", { name: "Hand over" }).click();
  await ben.getByRole("heading", { level: 1, name: /approvers to dora/ }).waitFor();

  const held = await refund(order("every day"));
  await ben.goto(`${base}/approvals/${held.id}/grant`);
  await ben.locator("fieldset", { hasText: "note" }).locator("select").selectOption("starts_with");
  await ben.locator("fieldset", { hasText: "note" }).locator("input[name^='value.']").fill("every ");
  await ben.locator("#uses").fill("3");
  await ben.locator("#reason").fill("it comes every day");
  await ben.getByRole("button", { name: "Propose the grant" }).click();
  await ben.getByRole("heading", { level: 1, name: /till\/refund/ }).waitFor();
  entries.standing = new URL(ben.url()).pathname;
  // The space is part of what it covers, and can be seen.
  assert.equal(await ben.locator("code.exact").textContent(), "every ");
});

await check("signing out ends the session in every window", async () => {
  const page = await signIn("dora");
  const other = await page.context().newPage();
  await other.goto(`${base}/help`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { level: 1, name: "You are signed out" }).waitFor();
  assert.equal(await page.getByRole("link", { name: /^Sign out of/ }).count(), 1);
  await other.reload();
  assert.ok(other.url().startsWith(`${base}/sign-in`));
  await page.context().close();
});

const held = await refund(order("to look at"));
// One whose arguments somebody else wrote, what is masked too.
const edited = await refund(order("to look at, edited", 90_000));
await check("an approver writes other arguments, what is masked too", async () => {
  const finn = await signIn("finn");
  await finn.goto(`${base}/approvals/${edited.id}/edit`);
  const text = await finn.locator("#args").inputValue();
  await finn.locator("#args").fill(text.replace("90000", "45000").replace("[sensitive]", "DE75 5121 0800 1245 1261 99"));
  await finn.locator("#reason").fill("half of it, and the account they use now");
  await finn.getByRole("button", { name: /^Propose these/ }).click();
  await finn.waitForURL(/done=edit/);
  await finn.context().close();
});
const together = async (page) => {
  await page.goto(`${base}/`);
  for (const one of [held, edited]) await page.locator(`#pick-${one.id}`).check();
  await page.locator("#together").click();
  await page.getByRole("heading", { level: 1, name: "Decide together" }).waitFor();
};
const pages = {
  inbox: "/", finished: "/?state=finished&order=newest", call: `/approvals/${held.id}`, edit: `/approvals/${held.id}/edit`,
  grant: `/approvals/${held.id}/grant`, timeline: `/calls/${held.call}/timeline`, load: "/load", report: "/report", grants: "/grants?state=all",
  "break-glass": "/break-glass?state=all", delegations: "/delegations?state=all", calendar: `/calendar?month=${soon}`, help: "/help",
  "not-found": "/approvals/none", edited: `/approvals/${edited.id}`, together,
  "entry-freeze": entries.freeze, "entry-break-glass": entries.emergency, "entry-grant": entries.standing,
};
for (const scheme of ["light", "dark"]) {
  const page = await signIn("ben", { colorScheme: scheme });
  for (const [name, path] of Object.entries(pages)) {
    await check(`axe finds nothing on ${name}, ${scheme}`, async () => {
      await visit(page, path);
      await accessible(page, `${name}, ${scheme}`);
    });
  }
  await page.context().close();
}
await check("axe finds nothing on the sign-in, and pages fit a phone", async () => {
  const outside = await window_();
  await outside.goto(`${base}/sign-in`);
  await accessible(outside, "sign-in");
  const phone = await signIn("ben", { viewport: { width: 360, height: 740 } });
  for (const [name, path] of Object.entries(pages)) {
    await visit(phone, path);
    const wide = await phone.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${name} is ${wide} px too wide`);
  }
});

if (task.shots) {
  const { shots } = await import("./shots.mjs");
  await shots(pages, held);
}
await finish();
