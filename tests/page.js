// Asks the page's model, in Node: `node page.js watch.js model < requests`; the model is page_model's JSON or a model
// folder; one JSON request a line, one answer a line. A request names what to do, and holds the arguments.
const { readFileSync, readdirSync } = require("node:fs");
const [, , script, source] = process.argv;
const { normalize, readFolder, Translator } = require(script);

const fileIn = (name) =>
  Object.assign(new File([readFileSync(`${source}/${name}`)], name), { webkitRelativePath: `folder/${name}` });
const modelOf = async () =>
  source.endsWith(".json") ? JSON.parse(readFileSync(source, "utf8")) : readFolder(readdirSync(source).map(fileIn));

const answersOf = (model, translator = new Translator(model)) => ({
  settings: () => ({ ...model, weights: null }),
  normalize: (texts) => texts.map(normalize),
  pieces: () => translator.tokenizer.pieces,
  encode: (texts) => texts.map((text) => translator.tokenizer.encode(text)),
  decode: (rows) => rows.map((tokens) => translator.tokenizer.decode(tokens)),
  translate: (request) => translator.translate(request),
  look: (request) => {
    const { written, ended, trace } = translator.look(request);
    return { written, ended, logProbs: written.map((token, i) => trace.generator[i][token]) };
  },
  trace: ({ source, target, leftOut }) => {
    const trace = translator.trace(source, target, leftOut);
    return Object.fromEntries(Object.entries(trace).map(([name, rows]) => [name, rows.map((row) => [...row])]));
  },
});
const finite = (_, value) => (value === -Infinity ? -3.4028234663852886e38 : value);

modelOf().then((model) => {
  const answers = answersOf(model);
  for (const line of readFileSync(0, "utf8").trim().split("\n")) {
    const { ask, of } = JSON.parse(line);
    console.log(JSON.stringify(answers[ask](of), finite));
  }
});
