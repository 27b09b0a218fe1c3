// A small MCP server over stdio whose writes can be repeated or asked about, for the tests of adapter classes.
//
//   node bank.mjs MANNER STATE
//
// STATE is its memory and its witness: one line of JSON for each effect, {token, tool, args, attempt, caller_key}, kept over restarts.
// Tools: `pay` (keyed by `_meta`), `order` (keyed by the argument `request_id`), `book` (queryable), `status` (tells of a token),
// `look` (a read). MANNER, or @FILE with the manner in it:
//
//   honest          keeps every promise
//   hangs           does it, and never answers

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [chosen = "honest", state = "/dev/null"] = process.argv.slice(2);
const manner = chosen.startsWith("@") ? readFileSync(chosen.slice(1), "utf8").trim() : chosen;

const TOKEN = "dev.placet/idempotency-key";

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
  const token = params.arguments.request_id ?? meta[TOKEN];
  const known = effects().findIndex((effect) => effect.token === token);
  if (known >= 0) return receipt(known);
  const entry = {
    token: meta[TOKEN],
    tool: params.name,
    args: params.arguments,
    attempt: meta["dev.placet/attempt"],
    caller_key: meta["dev.placet/caller-key"],
  };
  appendFileSync(state, JSON.stringify(entry) + "\n");
  return receipt(effects().length - 1);
}

function status(token) {
  const known = effects().findIndex((effect) => effect.token === token);
  if (known < 0) return content({ state: "not_found" });
  return content({ state: "committed", result: receipt(known) });
}

function call(params) {
  switch (params.name) {
    case "pay":
    case "order":
    case "book":
      return write(params);
    case "status":
      return status(params.arguments.token);
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
  const rest = found === undefined ? { error: { code: -32602, message: "no such thing" } } : { result: found };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: message.id, ...rest }) + "\n");
});
