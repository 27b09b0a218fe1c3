// A small MCP server for the end-to-end tests: stdio, or streamable HTTP with `http` as the first argument.
//
//   node stub.mjs MANNER [RECORD]          MANNER: good, silent, silent-calls, garbage, garbage-calls,
//                                        late-calls (each answered after 2.5 s),
//                                        refuses, errors (in words that quote the arguments)
//   node stub.mjs http RECORD              prints its port
//
// RECORD is a file that gets every message as a line of JSON, over HTTP with its headers. Nothing is installed for it.

import { appendFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const [manner = "good", record] = process.argv.slice(2);

const schema = {
  type: "object",
  properties: { what: { type: "string" } },
  required: ["what"],
  additionalProperties: false,
};

const tools = [
  { name: "look", description: "Looks at something.", inputSchema: schema },
  { name: "note", description: "Notes something down.", inputSchema: schema },
  { name: "erase", description: "Erases something.", inputSchema: schema },
];

// What shows that a secret arrived, without saying it.
const fingerprint = (text) => createHash("sha256").update(text).digest("hex");

function result(message) {
  switch (message.method) {
    case "initialize":
      return {
        protocolVersion: message.params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "stub", version: "1" },
      };
    case "tools/list":
      return { tools };
    case "tools/call": {
      const did = { tool: message.params.name, key: fingerprint(process.env.STUB_KEY ?? "") };
      return { content: [{ type: "text", text: JSON.stringify(did) }] };
    }
    case "ping":
      return {};
    default:
      return undefined;
  }
}

function failure(message) {
  const quoted = "cannot do it with " + JSON.stringify(message.params?.arguments);
  if (message.method !== "tools/call") return undefined;
  if (manner === "refuses") return { code: -32602, message: quoted };
  return manner === "errors" ? { code: -32000, message: quoted } : undefined;
}

function answer(message) {
  const error = failure(message);
  const found = error ? undefined : result(message);
  const rest = found === undefined ? { error: error ?? { code: -32601, message: "no such method" } } : { result: found };
  return JSON.stringify({ jsonrpc: "2.0", id: message.id, ...rest });
}

function keep(entry) {
  if (record) appendFileSync(record, JSON.stringify(entry) + "\n");
}

function stdio() {
  if (process.env.STUB_KEY) console.error("the key is " + process.env.STUB_KEY);
  createInterface({ input: process.stdin }).on("line", (line) => {
    const message = JSON.parse(line);
    keep(message);
    if (message.id === undefined || manner === "silent") return;
    const isCall = message.method === "tools/call";
    if (manner === "silent-calls" && isCall) return;
    if (manner === "late-calls" && isCall) {
      setTimeout(() => process.stdout.write(answer(message) + "\n"), 2500);
      return;
    }
    const isGarbage = manner === "garbage" || (manner === "garbage-calls" && isCall);
    process.stdout.write((isGarbage ? "\u0000{]} what is this" : answer(message)) + "\n");
  });
}

function http() {
  const server = createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      if (request.method !== "POST") return response.writeHead(405).end();
      const message = JSON.parse(Buffer.concat(chunks).toString());
      const headers = { ...request.headers };
      if (headers.authorization) headers.authorization = fingerprint(headers.authorization);
      keep({ headers, message });
      if (message.id === undefined) return response.writeHead(202).end();
      response.writeHead(200, { "content-type": "application/json" }).end(answer(message));
    });
  });
  server.listen(0, "127.0.0.1", () => console.log(String(server.address().port)));
}

if (manner === "http") http();
else stdio();
