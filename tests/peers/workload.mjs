// An agent of the SPIFFE Workload API for the end-to-end tests, over a socket in the file system, with the gRPC library of npm.
//
//   node workload.mjs SOCKET      says {"ready": true}, and {"done": WORD} after each line of its input:
//
//   bundles {"spiffe://a.example": {"keys": [..]}, ..}   what every stream is told from now on
//   deny, allow                                          whether it gives this process anything
//   sign {"id": "spiffe://..", "key": JWK, "life_s": 60} as whom, with which key and for how long it makes JWT-SVIDs
//   mute                                                 it answers nothing any more

import { createPrivateKey, sign } from "node:crypto";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { load } from "../console/modules.mjs";

const [socket] = process.argv.slice(2);
const grpc = await load("@grpc/grpc-js");
const loader = await load("@grpc/proto-loader");
const proto = loader.loadSync(fileURLToPath(new URL("workload.proto", import.meta.url)), { keepCase: true });
const { SpiffeWorkloadAPI } = grpc.loadPackageDefinition(proto);

let bundles = {};
let denied = false;
let muted = false;
let signer;
const streams = new Set();

const refused = () => ({ code: grpc.status.PERMISSION_DENIED, details: "no identity issued: kanarienvogel" });

// The standard wants it of every request, so that a browser cannot be led to make one.
const hasHeader = (call) => call.metadata.get("workload.spiffe.io")[0] === "true";
const misled = { code: grpc.status.INVALID_ARGUMENT, details: "security header missing" };

function tell(stream) {
  const bytes = Object.entries(bundles).map(([domain, keys]) => [domain, Buffer.from(JSON.stringify(keys))]);
  stream.write({ bundles: Object.fromEntries(bytes) });
}

function fetchBundles(stream) {
  if (muted) return;
  if (!hasHeader(stream)) return stream.emit("error", misled);
  if (denied) return stream.emit("error", refused());
  streams.add(stream);
  for (const over of ["cancelled", "close", "error"]) stream.on(over, () => streams.delete(stream));
  tell(stream);
}

function svid(audience) {
  const now = Math.floor(Date.now() / 1000);
  const text = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const header = { alg: "ES256", kid: signer.key.kid, typ: "JWT" };
  const signed = `${text(header)}.${text({ sub: signer.id, aud: audience, iat: now, exp: now + signer.life_s })}`;
  const key = createPrivateKey({ key: signer.key, format: "jwk" });
  return `${signed}.${sign("sha256", Buffer.from(signed), { key, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
}

function fetchSvid(call, answer) {
  if (muted) return;
  if (!hasHeader(call)) return answer(misled);
  if (denied || !signer) return answer(refused());
  answer(null, { svids: [{ spiffe_id: signer.id, svid: svid(call.request.audience) }] });
}

const server = new grpc.Server();
server.addService(SpiffeWorkloadAPI.service, { FetchJWTBundles: fetchBundles, FetchJWTSVID: fetchSvid });
server.bindAsync(`unix:${socket}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  console.log(JSON.stringify({ ready: true }));
});

createInterface({ input: process.stdin }).on("line", (line) => {
  const [word, ...rest] = line.split(" ");
  const value = rest.length > 0 ? JSON.parse(rest.join(" ")) : undefined;
  if (word === "bundles") {
    bundles = value;
    streams.forEach(tell);
  } else if (word === "deny" || word === "allow") {
    denied = word === "deny";
    if (denied) for (const stream of streams) stream.emit("error", refused());
  } else if (word === "sign") {
    signer = value;
  } else if (word === "mute") {
    muted = true;
  }
  console.log(JSON.stringify({ done: word }));
});
