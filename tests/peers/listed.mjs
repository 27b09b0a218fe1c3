// An MCP server over stdio whose tools are what a file says at this moment.
//
//   node listed.mjs TOOLS RECORD
//
// TOOLS is a JSON file with the definitions as `tools/list` answers them, read for each listing. RECORD gets the parameters of every call as a
// line of JSON. Without TOOLS it says so on standard error and ends. Nothing is installed for it.

import { appendFileSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [tools, record] = process.argv.slice(2);

if (!tools) {
  console.error("missing API key FOO");
  process.exit(3);
}

function result(message) {
  switch (message.method) {
    case "initialize":
      return {
        protocolVersion: message.params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "listed", version: "1" },
      };
    case "tools/list":
      return { tools: JSON.parse(readFileSync(tools, "utf8")) };
    case "tools/call":
      appendFileSync(record, JSON.stringify(message.params) + "\n");
      return { content: [{ type: "text", text: "done" }] };
    default:
      return {};
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) return;
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: result(message) }) + "\n");
});
