// The ledger of a bank, as small as it can be: an MCP server over stdio with one tool, for the worked example of the docs.
//
//   node bank.mjs BOOKED
//
// BOOKED is what it did: one line of JSON for each credit.

import { appendFileSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [booked] = process.argv.slice(2);

const credit = {
  name: "credit",
  description: "Credits an account of a tenant",
  inputSchema: {
    type: "object",
    additionalProperties: false,
    required: ["recipient", "cents", "purpose"],
    properties: {
      recipient: { type: "string", maxLength: 64 },
      cents: { type: "integer", minimum: 1, maximum: 100000000 },
      purpose: { type: "string", maxLength: 200 },
      account: { type: "string", maxLength: 40, "x-sensitive": true },
    },
  },
};

function book(args) {
  appendFileSync(booked, JSON.stringify(args) + "\n");
  const entries = readFileSync(booked, "utf8").split("\n").length - 1;
  const structuredContent = { entry: entries };
  return { content: [{ type: "text", text: JSON.stringify(structuredContent) }], structuredContent };
}

function result({ method, params }) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "bank", version: "1" },
      };
    case "tools/list":
      return { tools: [credit] };
    case "tools/call":
      return book(params.arguments);
    case "ping":
      return {};
    default:
      return undefined;
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) return;
  const answer = result(message);
  const outcome = answer ? { result: answer } : { error: { code: -32601, message: "unknown method" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: message.id, ...outcome }) + "\n");
});
