// Asks the page's model, in Node: `node page.js watch.js model.json < requests`; one JSON request a line, one answer
// a line. A request names a method of the translator or of its tokenizer, and holds the arguments.
const { readFileSync } = require("node:fs");
const [, , script, model] = process.argv;
const { Translator } = require(script);
const translator = new Translator(JSON.parse(readFileSync(model, "utf8")));

const answers = {
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
};
const finite = (_, value) => (value === -Infinity ? -3.4028234663852886e38 : value);

for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const { ask, of } = JSON.parse(line);
  console.log(JSON.stringify(answers[ask](of), finite));
}
