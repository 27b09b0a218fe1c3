// Screenshots of each main page: light, dark, and at phone width. Asked for by PLACET_SHOTS=FOLDER, see CONTRIBUTING.md.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { base, signIn, task, visit, window_ } from "./support.mjs";

const WAYS = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: { colorScheme: "light", viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 },
};

export async function shots(pages) {
  mkdirSync(task.shots, { recursive: true });
  for (const [way, options] of Object.entries(WAYS)) {
    const page = await signIn("cleo", options);
    for (const [name, path] of Object.entries(pages)) {
      if (name === "report") continue;
      await visit(page, path);
      await page.screenshot({ path: join(task.shots, `${name}-${way}.png`), fullPage: true });
    }
    await page.context().close();
    // For operators alone.
    const operator = await signIn("ben", options);
    await visit(operator, "/report");
    await operator.screenshot({ path: join(task.shots, `report-${way}.png`), fullPage: true });
    await operator.context().close();
    const outside = await window_(options);
    await outside.goto(`${base}/sign-in`);
    await outside.screenshot({ path: join(task.shots, `sign-in-${way}.png`), fullPage: true });
    await outside.context().close();
  }
}
