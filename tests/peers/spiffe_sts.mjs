// A token service for the end-to-end tests that knows its clients by their JWT-SVIDs: the `spiffe_jwt` client authentication of the OAuth
// working group's draft. It gives tokens of its own for `client_credentials`.
//
//   node spiffe_sts.mjs JWKS ISSUER SPIFFE_ID      prints its port, then a line of JSON for each request: {"refused": WHY} or {"token": .., "svid": ..}

import { createPublicKey, randomBytes, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const [jwks, issuer, spiffeId] = process.argv.slice(2);
const TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-spiffe";

// Read at each request: the trust domain may rotate its keys.
function problem(form) {
  if (form.get("grant_type") !== "client_credentials") return "the grant";
  if (form.get("client_assertion_type") !== TYPE) return "the type of the assertion";
  const [head, body, signature] = (form.get("client_assertion") ?? "").split(".");
  if (!signature) return "no assertion";
  const read = (part) => JSON.parse(Buffer.from(part, "base64url").toString());
  const { alg, kid } = read(head);
  const { sub, aud, exp } = read(body);
  const key = JSON.parse(readFileSync(jwks, "utf8")).keys.find((one) => one.kid === kid);
  if (!key || alg !== "ES256") return "the key";
  const publicKey = createPublicKey({ key, format: "jwk" });
  const bytes = Buffer.from(signature, "base64url");
  const signed = verify("sha256", Buffer.from(`${head}.${body}`), { key: publicKey, dsaEncoding: "ieee-p1363" }, bytes);
  if (!signed) return "the signature";
  const audiences = [aud].flat();
  if (audiences.length !== 1 || audiences[0] !== issuer) return "the audience";
  if (sub !== spiffeId || form.get("client_id") !== spiffeId) return "the client";
  return exp * 1000 > Date.now() ? undefined : "the time";
}

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const form = new URLSearchParams(Buffer.concat(chunks).toString());
    const refused = problem(form);
    const say = (status, document) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(document));
    };
    if (refused) {
      console.log(JSON.stringify({ refused }));
      return say(401, { error: "invalid_client", error_description: refused });
    }
    const token = randomBytes(24).toString("base64url");
    console.log(JSON.stringify({ token, svid: form.get("client_assertion") }));
    say(200, { access_token: token, token_type: "Bearer", expires_in: 60, scope: form.get("scope") ?? undefined });
  });
});
server.listen(0, "127.0.0.1", () => console.log(String(server.address().port)));
