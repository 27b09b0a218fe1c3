// Finds the packages that tests/npm pins, wherever they are installed: PLACET_E2E_MODULES names the folder `node_modules`.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.env.PLACET_E2E_MODULES;
if (!folder) throw new Error("PLACET_E2E_MODULES names no folder with the packages of tests/npm");
const here = createRequire(join(folder, "any.js"));

export const load = (name) => import(pathToFileURL(here.resolve(name)).href);
export const file = (name) => here.resolve(name);
