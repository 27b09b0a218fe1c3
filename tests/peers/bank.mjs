// A small MCP server over stdio whose writes can be repeated or asked about, for the tests of adapter classes.
//
//   node bank.mjs MANNER STATE
//
// STATE is its memory and its witness: one line of JSON for each effect, {token, tool, args, attempt, caller_key}, kept over restarts.
// Tools: `pay` (keyed by `_meta`), `order` (keyed by the argument `request_id`), `book` (queryable), `status` (tells of a token),
// `count` (tells how many effects there were), `look` (a read). MANNER, or @FILE with the manner in it:
//
//   honest          keeps every promise
//   twice           `pay`, `order` and `book` do it again for a token they know, and answer as the first time
//   one-for-all     takes every token for the same
//   forgets         `status` says «not found» of everything
//   probe-acts      `status` has an effect of its own
//   probe-notes     `status` knows a token once it was asked about it
//   tells-another   `status` tells another result than the call was answered with
//   garbage-calls   answers calls with something that is no answer
//   hangs           does it, and never answers

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [chosen = "honest", state = "/dev/null"] = process.argv.slice(2);
const manner = chosen.startsWith("@") ? readFileSync(chosen.slice(1), "utf8").trim() : chosen;

const TOKEN = "dev.placet/idempotency-key";
const asked = new Set();

const effects = () =>
  existsSync(state) ? readFileSync(state, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line)) : [];

const tool = (name, properties, required = []) => ({
  name,
  description: name + " something",
  inputSchema: { type: "object", properties, required, additionalProperties: false },
});
const amount = { amount: { type: "integer" } };

const tools = [
  tool("pay", amount, ["amount"]),
  tool("order", { ...amount, request_id: { type: "string" } }, ["amount"]),
  tool("book", amount, ["amount"]),
  tool("status", { token: { type: "string" } }, ["token"]),
  tool("count", {}),
  tool("look", {}),
];

const content = (structuredContent) => ({
  content: [{ type: "text", text: JSON.stringify(structuredContent) }],
  structuredContent,
});

// What a write was answered with, by its place in the witness.
const receipt = (index) => content({ receipt: index + 1 });

function write(params) {
  const meta = params._meta ?? {};
  const token = manner === "one-for-all" ? "all" : (params.arguments.request_id ?? meta[TOKEN]);
  const known = effects().findIndex((effect) => effect.token === token);
  if (known >= 0 && manner !== "twice") return receipt(known);
  const entry = {
    token,
    tool: params.name,
    args: params.arguments,
    attempt: meta["dev.placet/attempt"],
    caller_key: meta["dev.placet/caller-key"],
  };
  appendFileSync(state, JSON.stringify(entry) + "\n");
  return known >= 0 ? receipt(known) : receipt(effects().length - 1);
}

function status(token) {
  if (manner === "probe-acts") appendFileSync(state, JSON.stringify({ token: "of a probe" }) + "\n");
  const known = effects().findIndex((effect) => effect.token === token);
  const before = asked.has(token);
  asked.add(token);
  if (manner === "forgets") return content({ state: "not_found" });
  if (manner === "probe-notes" && before) return content({ state: "committed", result: receipt(0) });
  if (known < 0) return content({ state: "not_found" });
  return content({ state: "committed", result: receipt(manner === "tells-another" ? known + 7 : known) });
}

function call(params) {
  switch (params.name) {
    case "pay":
    case "order":
    case "book":
      return write(params);
    case "status":
      return status(params.arguments.token);
    case "count":
      return content({ count: effects().length });
    case "look":
      return content({ seen: true });
    default:
      return undefined;
  }
}

function result(message) {
  switch (message.method) {
    case "initialize":
      return {
        protocolVersion: message.params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "bank", version: "1" },
      };
    case "tools/list":
      return { tools };
    case "tools/call":
      return call(message.params);
    case "ping":
      return {};
    default:
      return undefined;
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) return;
  const found = result(message);
  const writes = message.method === "tools/call" && ["pay", "order", "book"].includes(message.params.name);
  if (manner === "hangs" && writes) return;
  if (manner === "garbage-calls" && writes) return void process.stdout.write("\u0000{]} what is this\n");
  const rest = found === undefined ? { error: { code: -32602, message: "no such thing" } } : { result: found };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: message.id, ...rest }) + "\n");
});
