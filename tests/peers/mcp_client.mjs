// An MCP client on the official TypeScript SDK (2025-11-25, with a session): does the steps that it reads, one JSON document per line, and answers each on
// a line, as mcp_client.py does.
//
//   node mcp_client.mjs MODULES SERVER     MODULES: the folder node_modules with the SDK; SERVER: as for mcp_client.py
//
// Steps: {"list": true}, {"call": NAME, "args": {…}, "meta": {…}}, {"cancelled_call": NAME, "args": {…}, "after_ms": N}.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [modules, server] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

function transportTo(server) {
  if (!server.startsWith("[")) return new StreamableHTTPClientTransport(new URL(server));
  const [command, ...args] = JSON.parse(server);
  return new StdioClientTransport({ command, args });
}

const transport = transportTo(server);
const client = new Client({ name: "typescript", version: "1" });
const answer = (document) => console.log(JSON.stringify(document));

async function called(step) {
  const progress = [];
  const params = { name: step.call, arguments: step.args ?? {}, _meta: step.meta };
  const result = await client.callTool(params, undefined, { onprogress: (one) => progress.push(one.message) });
  return { ...result, progress };
}

async function cancelled(step) {
  const controller = new AbortController();
  setTimeout(() => controller.abort("enough"), step.after_ms);
  const params = { name: step.cancelled_call, arguments: step.args ?? {} };
  return client.callTool(params, undefined, { signal: controller.signal }).catch((error) => {
    if (!controller.signal.aborted) throw error;
    return { cancelled: true };
  });
}

async function does(step) {
  if (step.list) return client.listTools();
  return step.cancelled_call ? cancelled(step) : called(step);
}

await client.connect(transport);
answer({ revision: transport.protocolVersion ?? null });
for await (const line of createInterface({ input: process.stdin })) {
  await does(JSON.parse(line)).then(answer, (error) => answer({ error: error.message, code: error.code ?? null }));
}
await client.close();
