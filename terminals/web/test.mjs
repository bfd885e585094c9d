// Run the unit tests: each is bundled to JavaScript in a passing directory and given to Node's own test runner.

import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const tests = fileURLToPath(new URL("test", import.meta.url));
const scratch = await mkdtemp(join(tmpdir(), "terminal-tests."));
try {
  const names = (await readdir(tests)).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: names.map((name) => join(tests, name)),
    bundle: true,
    platform: "node",
    format: "esm",
    outExtension: { ".js": ".mjs" },
    outdir: scratch,
    logLevel: "warning",
  });
  const built = names.map((name) => join(scratch, name.replace(/\.ts$/, ".mjs")));
  process.exitCode = spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" }).status ?? 1;
} finally {
  await rm(scratch, { recursive: true });
}
