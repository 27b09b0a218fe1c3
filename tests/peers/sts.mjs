// A real OpenID provider that exchanges tokens (npm oidc-provider), with people and clients of its own; shares no code with Placet.
//
//   node sts.mjs KEY-FILE [CERTIFICATE KEY AUTHORITY]
//                              prints {"issuer": …, "agent": token, "users": {name: token}, "tls": port} once it listens
//
// The private key of the client `placet` is written to KEY-FILE (PKCS #8, PEM); `placet-basic` has CLIENT_SECRET. Users sign in with the
// authorization code flow and PKCE, without a browser. With a certificate it listens under TLS as well, and there the client `placet-tls` proves itself with a
// certificate of AUTHORITY for `placet.example` (RFC 8705). A line on its standard input changes how it behaves:
//   revoke NAME | restore NAME      whether it exchanges that user's tokens
//   refuse CODE | refuse none       the error that it answers every exchange with
//   sign-in NAME                    signs that user in again; the line that answers has the token, and the ID token that came with it
//   sign {"typ": …, "claims": {…}}  signs what it gave alice with other claims, of which null leaves one out; the line that answers has the token
//   grant SCOPE … | grant asked     the scopes that it grants, whatever was asked for
//   answer {…}                      members of its answers that are otherwise, of which null leaves one out
//   fail {"status": …, "body": …, "location": …} | fail none     what it answers every exchange with
//   late MS                         how long it thinks about an exchange
//   secret TEXT                     the only secret of `placet-basic` from now on
//   asked                           the line that answers has the form of every exchange so far, and its headers

import { createHash, generateKeyPairSync, randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createInterface } from "node:readline";
import { load } from "../console/modules.mjs";

const [keyFile, certificate, certificateKey, authority] = process.argv.slice(2);
const { Provider, errors } = await load("oidc-provider");
const { CompactSign, createLocalJWKSet, decodeJwt, jwtVerify } = await load("jose");

const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS = "urn:ietf:params:oauth:token-type:access_token";
const JWT = "urn:ietf:params:oauth:token-type:jwt";
const CALLBACK = "http://127.0.0.1:9/callback";
// What each resource server knows, and the most that may be asked of it.
const targets = { placet: "invoke", "urn:mail-api": "mail.read mail.send mail.labels invoke" };
const people = ["alice", "bob"];
const revoked = new Set();
let refusal = "none";
let granting = "asked";
let otherwise = {};
let failure;
let late = 0;
const asked = [];

const signing = generateKeyPairSync("ec", { namedCurve: "P-256" });
const own = { ...signing.privateKey.export({ format: "jwk" }), kid: "signing", use: "sig", alg: "ES256" };
const published = { ...signing.publicKey.export({ format: "jwk" }), kid: "signing", alg: "ES256" };
const placet = generateKeyPairSync("ec", { namedCurve: "P-256" });
writeFileSync(keyFile, placet.privateKey.export({ format: "pem", type: "pkcs8" }), { mode: 0o600 });
const placetKey = { ...placet.publicKey.export({ format: "jwk" }), kid: "placet-1", use: "sig", alg: "ES256" };

const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;

const secret = () => randomBytes(24).toString("base64url");
const agentSecret = secret();
const appSecret = secret();
const machine = { redirect_uris: [], response_types: [] };
const target = (name) => ({
  audience: name,
  scope: targets[name],
  accessTokenFormat: "jwt",
  accessTokenTTL: 300,
  jwt: { sign: { alg: "ES256", kid: "signing" } },
});

const provider = new Provider(issuer, {
  jwks: { keys: [own] },
  cookies: { keys: ["only for tests"] },
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  clientAuthMethods: ["client_secret_basic", "private_key_jwt", "tls_client_auth"],
  clients: [
    {
      client_id: "app",
      client_secret: appSecret,
      redirect_uris: [CALLBACK],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
    { ...machine, client_id: "agent-1", client_secret: agentSecret, grant_types: ["client_credentials"] },
    {
      ...machine,
      client_id: "placet",
      token_endpoint_auth_method: "private_key_jwt",
      token_endpoint_auth_signing_alg: "ES256",
      jwks: { keys: [placetKey] },
      grant_types: [EXCHANGE, "client_credentials"],
    },
    {
      ...machine,
      client_id: "placet-tls",
      token_endpoint_auth_method: "tls_client_auth",
      tls_client_auth_san_dns: "placet.example",
      grant_types: [EXCHANGE],
    },
    { ...machine, client_id: "placet-basic", client_secret: process.env.CLIENT_SECRET, grant_types: [EXCHANGE] },
  ],
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    mTLS: {
      enabled: true,
      tlsClientAuth: true,
      getCertificate: ({ socket }) => socket.getPeerX509Certificate?.()?.toString(),
      certificateAuthorized: ({ socket }) => socket.authorized === true,
      certificateSubjectMatches: ({ socket }, property, expected) =>
        property === "tls_client_auth_san_dns" && socket.getPeerX509Certificate().checkHost(expected) === expected,
    },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, name) => {
        if (!targets[name.replace(/^urn:placet$/, "placet")]) throw new errors.InvalidTarget();
        return { ...target(name.replace(/^urn:placet$/, "placet")) };
      },
      defaultResource: () => undefined,
      useGrantedResource: () => true,
    },
  },
  extraTokenClaims: (_, token) =>
    token.acting ? { act: token.acting } : { placet_kind: token.kind === "ClientCredentials" ? "agent" : "user" },
  findAccount: (_, name) => people.includes(name) && { accountId: name, claims: () => ({ sub: name }) },
});

const keys = createLocalJWKSet({ keys: [published] });
const assertionKeys = createLocalJWKSet({ keys: [placetKey] });

async function verified(token, type, client) {
  if (type !== ACCESS && type !== JWT) throw new errors.InvalidRequest("this type of token is not taken");
  try {
    // Placet's own word is signed with its own key; everything else is ours.
    if (type === JWT && client.clientId === "placet") {
      const { payload } = await jwtVerify(token, assertionKeys, { issuer: "placet" });
      return payload;
    }
    // The second name is that of another tenant's issuer, which has the same keys.
    return (await jwtVerify(token, keys, { issuer: [issuer, `${issuer}/globex`] })).payload;
  } catch {
    throw new errors.InvalidGrant("the token is not good");
  }
}

// With other members; those that are null are left out.
const changed = (members, others) =>
  Object.fromEntries(Object.entries({ ...members, ...others }).filter(([, value]) => value !== null));

// What it gave alice, with other claims: everything else about it is right, its signature too.
function sign({ typ = "at+jwt", claims }) {
  const said = changed({ ...decodeJwt(users.alice), jti: secret() }, claims);
  return new CompactSign(Buffer.from(JSON.stringify(said)))
    .setProtectedHeader({ alg: "ES256", kid: "signing", typ })
    .sign(signing.privateKey);
}

async function exchange(ctx) {
  const { params, client } = ctx.oidc;
  asked.push({ ...params, headers: ctx.headers });
  await new Promise((over) => setTimeout(over, late));
  if (failure) {
    ctx.status = failure.status;
    if (failure.location) ctx.set("location", failure.location);
    ctx.body = failure.body ?? "";
    return;
  }
  if (refusal !== "none") {
    ctx.status = refusal === "invalid_client" ? 401 : 400;
    ctx.body = { error: refusal, error_description: "in words that nobody repeats" };
    return;
  }
  const subject = await verified(params.subject_token, params.subject_token_type, client);
  if (revoked.has(subject.sub)) throw new errors.InvalidGrant(`${subject.sub} is locked out`);
  let acting = { sub: client.clientId };
  if (params.actor_token) {
    const actor = await verified(params.actor_token, params.actor_token_type, client);
    acting = { sub: actor.sub };
  }
  const name = params.audience;
  if (!targets[name]) throw new errors.InvalidTarget("nobody of this name");
  const known = targets[name].split(" ");
  // Labels are for nobody: a scope that is asked for is not one that is granted.
  const wanted = (params.scope ?? "").split(" ").filter(Boolean);
  if (wanted.some((scope) => !known.includes(scope))) throw new errors.InvalidScope("not of this target", params.scope);
  const granted = granting === "asked" ? wanted.filter((scope) => scope !== "mail.labels").join(" ") : granting;
  const token = new provider.AccessToken({ accountId: subject.sub, client, gty: "token-exchange", scope: granted });
  token.resourceServer = new provider.ResourceServer(name, target(name));
  token.acting = acting;
  const value = await token.save();
  ctx.body = changed(
    {
      access_token: value,
      issued_token_type: ACCESS,
      token_type: "Bearer",
      expires_in: token.expiration,
      scope: granted,
    },
    otherwise,
  );
}
provider.registerGrantType(EXCHANGE, exchange, [
  "subject_token",
  "subject_token_type",
  "actor_token",
  "actor_token_type",
  "requested_token_type",
  "audience",
  "scope",
]);
provider.on("server_error", (_, error) => console.error(error));
server.on("request", provider.callback());

// Under TLS it asks everybody for a certificate, and leaves it to the provider whose it is.
let tls;
if (certificate) {
  const [cert, key, ca] = [certificate, certificateKey, authority].map((file) => readFileSync(file));
  const secure = createTlsServer({ cert, key, ca, requestCert: true, rejectUnauthorized: false }, provider.callback());
  await new Promise((ready) => secure.listen(0, "127.0.0.1", ready));
  tls = secure.address().port;
}

const form = (fields, headers = {}) => ({
  method: "POST",
  headers: { "content-type": "application/x-www-form-urlencoded", ...headers },
  body: new URLSearchParams(fields).toString(),
});
const basic = (id, password) => ({ authorization: "Basic " + Buffer.from(`${id}:${password}`).toString("base64") });

async function tokens(fields, headers) {
  const answer = await fetch(`${issuer}/token`, form(fields, headers));
  const said = await answer.json();
  if (!said.access_token) throw new Error(JSON.stringify(said));
  return { token: said.access_token, id_token: said.id_token };
}

// What a browser would do: follows redirects, keeps cookies, fills in the name and agrees.
async function signIn(name) {
  const cookies = new Map();
  const verifier = randomBytes(32).toString("base64url");
  const visit = async (to, options = {}) => {
    const cookie = [...cookies].map((pair) => pair.join("=")).join("; ");
    const answer = await fetch(new URL(to, issuer), { redirect: "manual", ...options, headers: { ...options.headers, cookie } });
    for (const line of answer.headers.getSetCookie()) {
      const [pair] = line.split(";");
      const at = pair.indexOf("=");
      cookies.set(pair.slice(0, at), pair.slice(at + 1));
    }
    return answer;
  };
  const query = new URLSearchParams({
    client_id: "app",
    response_type: "code",
    redirect_uri: CALLBACK,
    scope: "openid invoke",
    resource: "urn:placet",
    code_challenge: createHash("sha256").update(verifier).digest("base64url"),
    code_challenge_method: "S256",
  });
  let answer = await visit(`/auth?${query}`);
  for (let step = 0; step < 12; step++) {
    const to = answer.headers.get("location");
    if (to?.startsWith(CALLBACK)) {
      const code = new URL(to).searchParams.get("code");
      const fields = { grant_type: "authorization_code", code, redirect_uri: CALLBACK, code_verifier: verifier };
      return tokens({ ...fields, resource: "urn:placet" }, basic("app", appSecret));
    }
    if (to) {
      answer = await visit(to);
      continue;
    }
    const page = await answer.text();
    const [, action] = page.match(/action="([^"]+)"/);
    const [, prompt] = page.match(/name="prompt" value="([^"]+)"/);
    answer = await visit(action, form({ prompt, login: name, password: "any" }));
  }
  throw new Error(`${name} does not get in`);
}

const { token: agent } = await tokens(
  { grant_type: "client_credentials", resource: "urn:placet", scope: "invoke" },
  basic("agent-1", agentSecret),
);
const users = {};
for (const name of people) users[name] = (await signIn(name)).token;
console.log(JSON.stringify({ issuer, agent, users, tls }));

const words = {
  revoke: (name) => void revoked.add(name),
  restore: (name) => void revoked.delete(name),
  refuse: (code) => void (refusal = code),
  "sign-in": (name) => signIn(name),
  sign: async (token) => ({ token: await sign(JSON.parse(token)) }),
  grant: (scopes) => void (granting = scopes),
  answer: (members) => void (otherwise = JSON.parse(members)),
  fail: (answer) => void (failure = answer === "none" ? undefined : JSON.parse(answer)),
  late: (ms) => void (late = Number(ms)),
  secret: async (text) => void ((await provider.Client.find("placet-basic")).clientSecret = text),
  asked: () => ({ asked }),
};
createInterface({ input: process.stdin }).on("line", async (line) => {
  const [, word, rest] = line.match(/^(\S+) ?(.*)$/);
  console.log(JSON.stringify({ done: line, ...(await words[word](rest)) }));
});
