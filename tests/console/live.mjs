// The console's script on a line that behaves as a test says: busy, refused, broken, signed out. Driven by tests/it/console.rs.
//
// The page is a small one of our own with the parts that the console marks; the script and the page's policy are the console's.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { check, complaints, finish, task, until, window_ } from "./support.mjs";

const script = readFileSync(task.script);
const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'";

// What the server says, and what it was asked. Each look at the page has other words for how long ago it began.
const began = new Date(Date.now() - 5_000).toISOString();
const directives = { state: "waits", agreed: 0, note: "", edited: "", button: "Approve" };
let looks = 0, lines = [], asked = [], answer = () => "stream", is_signed_in = true;

const page = () => `<!doctype html><html lang="en" data-now="${Date.now()}"><head><title>t</title><script src="/console.js" defer></script></head><body><main>
<div id="head" data-live data-address="/call"><h1 data-told>till/refund ${directives.state}</h1>
<p><time datetime="${began}" data-relative>${looks}</time></p></div>
<div id="what" data-live data-name="What will run"><p>${directives.edited}</p></div>
<div id="people" data-live data-name="Agreement"><div data-told>${directives.agreed} of 2 from approvers</div>
<p>Asked <time datetime="${began}" data-relative>${looks}</time></p>
<ul><li><a href="/a">first</a></li><li><a href="/b">second</a></li></ul><p>${directives.note}</p></div>
<div id="decide" data-live><button>${directives.button}</button><button>Deny</button><p>${directives.note}</p></div>
<div id="further" data-live><details id="digests"><summary>Digests</summary><p>${directives.note}</p></details></div>
</main><div id="live" role="status" aria-live="polite"></div></body></html>`;

const server = createServer((request, response) => {
  const send = (status, type, text, more = {}) => { response.writeHead(status, { "content-type": type, "content-security-policy": POLICY, ...more }); response.end(text); };
  const path = new URL(request.url, "http://any").pathname;
  if (path === "/console.js") return send(200, "text/javascript", script);
  if (path === "/sign-in") return send(200, "text/html", "<!doctype html><title>t</title><h1>Sign in</h1>");
  if (path === "/favicon.ico") return send(404, "text/plain", "");
  if (!is_signed_in) return send(303, "text/plain", "", { location: "/sign-in" });
  if (path === "/live") {
    asked.push(Date.now());
    const status = answer(asked.length);
    if (status !== "stream") return send(status, "text/html", "no");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(": alive\n\n");
    lines.push(response);
    return undefined;
  }
  // What a form left behind answers nobody.
  if (path !== "/call") return send(request.headers["placet-live"] ? 405 : 409, "text/html", page());
  if (request.headers["placet-live"]) looks += 1;
  return send(200, "text/html", page());
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const base = `http://127.0.0.1:${server.address().port}`;

const happen = () => { for (const line of lines) line.write("event: approvals\ndata: look\n\n"); };
const open = async (path = "/call") => {
  for (const line of lines) line.end();
  Object.assign(directives, { state: "waits", agreed: 0, note: "", edited: "", button: "Approve" });
  lines = []; asked = []; looks = 0; answer = () => "stream"; is_signed_in = true;
  const window = await window_();
  await window.goto(base + path);
  await until(() => looks > 0, "the page has looked once its line is there");
  // Everything that is ever said, in order.
  await window.evaluate(() => {
    globalThis.heard = [];
    new MutationObserver(() => { const text = document.querySelector("#live").textContent; if (text) globalThis.heard.push(text); })
      .observe(document.querySelector("#live"), { childList: true, subtree: true, characterData: true });
  });
  return window;
};
const heard = (window) => window.evaluate(() => globalThis.heard);
const hears = (window, text) => until(async () => (await heard(window)).some((said) => said.includes(text)), `somebody hears: ${text}`);
// A look that began after this was called has ended.
const looked = async (window) => {
  const before = looks;
  happen();
  await until(() => looks > before, "the page looks again");
  await until(() => window.evaluate((note) => document.querySelector("#decide p").textContent === note, directives.note), "it shows what it saw");
};

await check("a page at a busy directives is brought up to date, and not more often than once a second", async () => {
  const window = await open();
  const began = Date.now();
  // It never falls silent for a quarter of a second.
  const news = setInterval(happen, 100);
  directives.note = "while it is busy";
  try {
    await window.locator("#decide", { hasText: "while it is busy" }).waitFor();
    const before = looks;
    await until(() => looks >= before + 3, "it looks again and again");
  } finally { clearInterval(news); }
  assert.ok(looks <= 3 + (Date.now() - began) / 900, `${looks} looks in ${Date.now() - began} ms`);
  await window.context().close();
});

await check("an answer that is no stream ends nothing: the line is asked for again, and the page looks then", async () => {
  const window = await open();
  answer = (time) => (time <= 4 ? 503 : "stream");
  for (const line of lines.splice(0)) line.end();
  await until(() => asked.length >= 5, "it asks until it is answered", 60_000);
  // 503 at the second, third and fourth time: each pause is longer than half of what the one before could have been.
  directives.note = "told on the new line";
  await looked(window);
  assert.equal(asked.length, 5);
  await window.context().close();
});

await check("a line that stays away is said after a while, and its return too", async () => {
  const window = await open();
  answer = () => 503;
  for (const line of lines.splice(0)) line.end();
  await hears(window, "The connection is lost");
  answer = () => "stream";
  await hears(window, "The connection is back.");
  await window.context().close();
});

await check("anyone who is signed out is told so, with the way back in", async () => {
  const window = await open();
  is_signed_in = false;
  for (const line of lines.splice(0)) line.end();
  await hears(window, "You are signed out.");
  const before = asked.length;
  await window.locator("#live").getByRole("link", { name: "Sign in again" }).click();
  await window.waitForURL(`${base}/sign-in?to=%2Fcall`);
  assert.equal(asked.length, before);
  await window.context().close();
  // The browser says that an answer of this check was no stream.
  for (const text of complaints.splice(0)) assert.match(text, /text\/event-stream/);
});

await check("what changed is told, and neither the passing of time nor what nobody has to hear", async () => {
  const window = await open();
  await looked(window);
  directives.note = "a word in passing";
  await looked(window);
  directives.agreed = 1;
  directives.note = "one";
  await looked(window);
  await hears(window, "Agreement: 1 of 2 from approvers");
  Object.assign(directives, { state: "denied", edited: "other arguments", note: "two" });
  await looked(window);
  await hears(window, "till/refund denied. What will run: changed.");
  for (const text of await heard(window)) assert.doesNotMatch(text, /ago|in \d|updated|Digests|undefined/);
  await window.context().close();
});

await check("nothing is told while only time passes", async () => {
  const window = await open();
  for (let times = 0; times < 3; times += 1) {
    const before = looks;
    happen();
    await until(() => looks > before, "it looks");
  }
  assert.deepEqual(await heard(window), []);
  await window.context().close();
});

await check("what is open stays open, and the focus stays or goes to its part, never to another button", async () => {
  const window = await open();
  const focused = () => window.evaluate(() => [document.activeElement.tagName, document.activeElement.textContent.slice(0, 8), document.activeElement.id]);
  await window.locator("summary").click();
  directives.note = "opened";
  await looked(window);
  await until(() => window.locator("details p", { hasText: "opened" }).count(), "the part is exchanged");
  assert.equal(await window.locator("details").evaluate((details) => details.open), true);
  assert.deepEqual(await focused(), ["SUMMARY", "Digests", ""]);
  await window.locator("summary").click();
  directives.note = "closed";
  await looked(window);
  assert.equal(await window.locator("details").evaluate((details) => details.open), false);
  await window.getByRole("link", { name: "second" }).focus();
  directives.note = "a link";
  await looked(window);
  assert.deepEqual(await focused(), ["A", "second", ""]);
  await window.getByRole("button", { name: "Approve" }).focus();
  Object.assign(directives, { button: "Approve it", note: "a button" });
  await looked(window);
  assert.deepEqual((await focused()).filter((_, at) => at !== 1), ["DIV", "decide"]);
  await window.context().close();
});

await check("a page that stands under the address of its form looks at its own address", async () => {
  const window = await open("/call/decision");
  directives.state = "expired";
  happen();
  await window.locator("h1", { hasText: "expired" }).waitFor();
  await window.context().close();
});

server.closeAllConnections();
server.close();
await finish();
