// Asks the pages of a tiny model, in Node: `node steps.js steps.js < lines`. The first line is the page's data; each line
// after it is a state, answered by all numbers of its computation, in a training's page after `state.update` updates.
const { readFileSync } = require("node:fs");
const { Tiny, Training } = require(process.argv[2]);

const [model, ...states] = readFileSync(0, "utf8").trim().split("\n").map((line) => JSON.parse(line));
(async () => {
  const training = model.steps ? await Training.unpack(model) : null;
  for (const state of states) {
    const tiny = new Tiny(training ? training.after(state.update) : model);
    console.log(JSON.stringify(tiny.compute(state)));
  }
})();
