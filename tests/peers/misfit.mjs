// An MCP server on the official SDK 1.18.2. Its tool has its effect and then returns what its output schema does not allow, at which this
// version of the SDK answers JSON-RPC error -32602: after the handler has run.
//
//   node misfit.mjs MODULES EFFECTS      each effect is a line of the file EFFECTS

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, effects] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(join(modules, "sdk-1-18", path)));
const { McpServer } = await load("dist/esm/server/mcp.js");
const { StdioServerTransport } = await load("dist/esm/server/stdio.js");
const { z } = await load("node_modules/zod/index.js");

const server = new McpServer({ name: "misfit", version: "1.0.0" });
server.registerTool(
  "transfer",
  {
    description: "Transfers an amount",
    inputSchema: { amount: z.number().int() },
    outputSchema: { receipt: z.number() },
  },
  ({ amount }) => {
    appendFileSync(effects, `${amount}\n`);
    const receipt = "a word, where the schema says a number";
    return { content: [{ type: "text", text: receipt }], structuredContent: { receipt } };
  },
);
await server.connect(new StdioServerTransport());
