// Bundles the page into one plain script, annotated/translation/watch/watch.js, which works from a disk too. With --check it only
// tells whether the script that is there is what would be made.
//
// All of it stands in one function, because the page starts a worker from that function's own text: a worker
// cannot be loaded from a file. In Node the script exports the translator, for the tests.
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const { metafile, outputFiles } = await build({
  entryPoints: ["src/main.tsx"],
  write: false,
  bundle: true,
  minify: true,
  metafile: true,
  format: "iife",
  globalName: "watch",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".css": "text" },
  banner: { js: "// Built from tools/watch; not to be edited.\nfunction annotatedWatch() {" },
  footer: {
    js: `return watch; }
if (typeof module === "undefined") annotatedWatch(); else module.exports = annotatedWatch();`,
  },
});

// Other people's code may be passed on with its licence.
const inputs = Object.keys(metafile.inputs).map(
  (path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1],
);
const packages = [...new Set(inputs.filter(Boolean))].sort();
const licences = packages.map(
  (name) => `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}\n`,
);

for (const [name, text] of [
  ["watch.js", outputFiles[0].text],
  ["LICENSES.txt", licences.join("\n\n")],
]) {
  const path = new URL(`../../annotated/translation/watch/${name}`, import.meta.url);
  if (!process.argv.includes("--check")) writeFileSync(path, text);
  else if (readFileSync(path, "utf8") !== text) {
    console.error(
      `annotated/translation/watch/${name} is not what tools/watch makes: make watch, and commit it`,
    );
    process.exitCode = 1;
  }
}
