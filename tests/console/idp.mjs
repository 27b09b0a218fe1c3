// A real OpenID provider for the console's sign-in, from npm (oidc-provider), with people of its own.
//
//   node idp.mjs CONSOLE-ORIGIN PEOPLE-JSON     prints {"issuer": …} once it listens
//
// PEOPLE-JSON is {"name": {"display": …, "groups": […]}, …}. Anyone who knows a name signs in; that is the provider's affair, not ours.

import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import { load } from "./modules.mjs";

const [origin, peopleJson] = process.argv.slice(2);
const people = JSON.parse(peopleJson);
const { Provider } = await load("oidc-provider");

const signing = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...signing, kid: "signing", use: "sig", alg: "RS256" }] },
  cookies: { keys: ["only for tests"] },
  clients: [
    {
      client_id: "placet-console",
      client_secret: process.env.CONSOLE_SECRET,
      redirect_uris: [`${origin}/sign-in/callback`],
      post_logout_redirect_uris: [`${origin}/signed-out`],
      grant_types: ["authorization_code"],
      response_types: ["code"],
      require_auth_time: true,
    },
  ],
  claims: { openid: ["sub"], profile: ["name"], groups: ["groups"] },
  // The groups stand in the ID token itself, where the console looks for them.
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  findAccount: (_, name) =>
    people[name] && {
      accountId: name,
      claims: () => ({ sub: name, name: people[name].display, groups: people[name].groups }),
    },
});
provider.on("server_error", (_, error) => console.error(error));
server.on("request", provider.callback());
console.log(JSON.stringify({ issuer }));
