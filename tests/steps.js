// Asks the page of a tiny model, in Node: `node steps.js steps.js < lines`. The first line is the model; each line after
// it is a state, answered by all numbers of its computation.
const { readFileSync } = require("node:fs");
const { Tiny } = require(process.argv[2]);

const [model, ...states] = readFileSync(0, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const tiny = new Tiny(model);
for (const state of states) console.log(JSON.stringify(tiny.compute(state)));
