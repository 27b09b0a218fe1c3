// Verifies a signed webhook with the library that the authors of Standard Webhooks publish; shares no code with Placet.
//
//   node signed.mjs KEY < {"headers": {…}, "body": "…"}      ends with 0 if the signature holds

import { readFileSync } from "node:fs";
import { load } from "../console/modules.mjs";

const library = await load("standardwebhooks");
const Webhook = library.Webhook ?? library.default.Webhook;
const { headers, body } = JSON.parse(readFileSync(0, "utf8"));
new Webhook(process.argv[2]).verify(body, headers);
