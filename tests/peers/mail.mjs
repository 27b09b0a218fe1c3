// A real mail server (npm smtp-server) that takes mail and writes it down; shares no code with Placet.
//
//   node mail.mjs MODE FOLDER CERTIFICATE KEY [USER PASSWORD]      prints its port once it listens
//
// MODE is `plain` (no TLS at all), `starttls` (mail only after STARTTLS) or `tls`. Each mail becomes FOLDER/<number>.eml, its first line how
// it came: whether under TLS, and who signed in.

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "../console/modules.mjs";

const [mode, folder, certificate, key, user, password] = process.argv.slice(2);
const { SMTPServer } = await load("smtp-server");

let count = 0;
const server = new SMTPServer({
  secure: mode === "tls",
  cert: readFileSync(certificate),
  key: readFileSync(key),
  disabledCommands: mode === "plain" ? ["STARTTLS"] : [],
  authOptional: !user,
  onMailFrom(address, session, done) {
    done(mode === "starttls" && !session.secure ? new Error("TLS first") : null);
  },
  onAuth(auth, session, done) {
    const known = auth.username === user && auth.password === password;
    done(known ? null : new Error("CANARY of the mail server"), known ? { user: auth.username } : undefined);
  },
  onData(stream, session, done) {
    const parts = [`secure=${session.secure} user=${session.user ?? "-"} to=${session.envelope.rcptTo.map((to) => to.address)}\n`];
    stream.on("data", (part) => parts.push(part.toString("utf8")));
    stream.on("end", () => {
      count += 1;
      // Anyone who sees the name sees the whole mail.
      const name = join(folder, `${count}.eml`);
      writeFileSync(`${name}.part`, parts.join(""));
      renameSync(`${name}.part`, name);
      done();
    });
  },
});
server.on("error", (error) => console.error(error.message));
server.listen(0, "127.0.0.1", () => console.log(server.server.address().port));
