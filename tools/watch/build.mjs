// Bundles each page into one plain script, which works from a disk too: the page of a translator's inside, and that of
// every number of a tiny model. With --check it only tells whether the scripts that are there are what would be made.
//
// All of a script stands in one function, because a page may start a worker from that function's own text: a worker
// cannot be loaded from a file. In Node a script exports what it computes with, for the tests.
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const PAGES = [
  ["src/main.tsx", "annotated/translation/watch", "watch"],
  ["src/steps/main.tsx", "annotated/plots/pages", "steps"],
];

for (const [entry, folder, name] of PAGES) {
  const { metafile, outputFiles } = await build({
    entryPoints: [entry],
    write: false,
    bundle: true,
    minify: true,
    metafile: true,
    format: "iife",
    globalName: "page",
    target: "es2022",
    charset: "utf8",
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".css": "text" },
    banner: { js: "// Built from tools/watch; not to be edited.\nfunction annotatedPage() {" },
    footer: {
      js: `return page; }
if (typeof module === "undefined") annotatedPage(); else module.exports = annotatedPage();`,
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

  for (const [file, text] of [
    [`${name}.js`, outputFiles[0].text],
    ["LICENSES.txt", licences.join("\n\n")],
  ]) {
    const path = new URL(`../../${folder}/${file}`, import.meta.url);
    if (!process.argv.includes("--check")) writeFileSync(path, text);
    else if (readFileSync(path, "utf8") !== text) {
      console.error(`${folder}/${file} is not what tools/watch makes: make watch, and commit it`);
      process.exitCode = 1;
    }
  }
}
