// Make dist/: terminal.html, one file with all that the page needs, and csp.json, the hashes of its script and its style by which
// the server allows them and nothing else.

import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const bundle = async (entry) => {
  const { outputFiles } = await build({
    absWorkingDir: here("."),
    entryPoints: [entry],
    bundle: true,
    write: false,
    minify: true,
    charset: "utf8",
    format: "iife",
    target: ["es2022", "chrome110", "firefox115", "safari16.4"],
    legalComments: "none",
    logLevel: "warning",
  });
  return outputFiles[0].text.trim();
};

const hash = (text) => `sha256-${createHash("sha256").update(text, "utf8").digest("base64")}`;

const fill = (template, name, text) => {
  const parts = template.split(`{{${name}}}`);
  if (parts.length !== 2) throw new Error(`page.html must contain {{${name}}} once`);
  return parts.join(text);
};

const [template, script, style, licence] = await Promise.all([
  readFile(here("src/page.html"), "utf8"),
  bundle("src/main.ts"),
  bundle("src/page.css"),
  readFile(here("node_modules/@xterm/xterm/LICENSE"), "utf8"),
]);
if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style)) throw new Error("the bundle would end its own element");

let page = template;
page = fill(page, "licence", licence.trim().replaceAll("--", "- -"));
page = fill(page, "style", style);
page = fill(page, "script", script);

await mkdir(here("dist"), { recursive: true });
await writeFile(here("dist/csp.json"), `${JSON.stringify({ script: [hash(script)], style: [hash(style)] })}\n`);
await writeFile(here("dist/terminal.html"), page);
