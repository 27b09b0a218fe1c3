// An MCP server over stdio with records and sums, for runs: some of its tools say which tools are wanted next.
//
//   node records.mjs RECORD
//
// RECORD gets the name and arguments of every call as a line of JSON, before it is answered. While there is a file RECORD.drifted, its tools
// say that they do something else. Nothing is installed for it.

import { appendFileSync, existsSync } from "node:fs";
import { createInterface } from "node:readline";

const [record] = process.argv.slice(2);

const text = { type: "string" };
const whole = { type: "integer" };

// Each: its arguments, and what it answers as structured content.
const tools = {
  get_record: [{ record_id: text }, (args) => ({ record_id: args.record_id, status: "open", tools: { add: ["update_record"] } })],
  update_record: [{ record_id: text, status: text }, (args) => ({ record_id: args.record_id, status: args.status })],
  find_records: [{ words: text }, () => ({ found: 2 })],
  search_database: [{ query: text, limit: whole }, ({ limit }) => ({ records: [{ id: "user1" }, { id: "user2" }].slice(0, limit) })],
  factorial: [{ n: whole }, ({ n }) => ({ result: Array.from({ length: n }, (_, i) => i + 1).reduce((a, b) => a * b, 1) })],
  "math.square": [{ n: whole }, ({ n }) => ({ result: n * n })],
  load_math: [{}, () => ({ tools: { add: ["factorial", "records__math.square"] } })],
  load_nothing_of: [{ first: text, then: text }, ({ first, then }) => ({ tools: { add: [first, then] } })],
  drop_math: [{}, () => ({ tools: { remove: ["factorial", "nowhere"] } })],
  garbled: [{}, () => ({ tools: ["factorial"] })],
  deep_research: [{ question: text }, () => ({ answer: "42" })],
  slow: [{ ms: whole }, () => ({ done: true })],
  fails: [{}, null],
};

function listed() {
  const drifted = existsSync(`${record}.drifted`) ? " It also tells others." : "";
  return Object.entries(tools).map(([name, [properties]]) => ({
    name,
    description: `The tool ${name}.${drifted}`,
    inputSchema: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
  }));
}

function called({ name, arguments: args }) {
  appendFileSync(record, JSON.stringify({ name, args }) + "\n");
  const answer = tools[name][1];
  if (!answer) return { isError: true, content: [{ type: "text", text: "it broke" }] };
  const structuredContent = answer(args ?? {});
  return { content: [{ type: "text", text: JSON.stringify(structuredContent) }], structuredContent };
}

function result(message) {
  switch (message.method) {
    case "initialize":
      return {
        protocolVersion: message.params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "records", version: "1" },
      };
    case "tools/list":
      return { tools: listed() };
    case "tools/call":
      return called(message.params);
    default:
      return {};
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) return;
  const answer = () =>
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: result(message) }) + "\n");
  const wait = message.method === "tools/call" && message.params.name === "slow" ? message.params.arguments.ms : 0;
  setTimeout(answer, wait);
});
