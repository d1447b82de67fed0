// The page of a tiny model: every number is what is written out beside it, and each step shows numbers of this model.
// That the computation is PyTorch's, tests/plots/test_steps.py holds.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { LANGUAGES, speak, texts } from "../src/steps/language.ts";
import { formulaOf, Num, reached, termsOf } from "../src/steps/num.ts";
import { factsOf, STEPS, type View } from "../src/steps/steps.tsx";
import { MOST, Tiny, type TinyModel } from "../src/steps/tiny.ts";

afterEach(() => speak("en"));

// A model of the notebook's size, its weights by a rule.
function model(): TinyModel {
  const [vocabulary, d, wide] = [["<s>", "</s>", "a", "the", "cat", "dog", "runs"], 4, 8];
  let seed = 1;
  const next = () => {
    seed = (seed * 48271) % 2147483647;
    return Math.round(20 * (seed / 2147483647 - 0.5)) / 10;
  };
  const matrix = (rows: number, columns: number) =>
    Array.from({ length: rows }, () => Array.from({ length: columns }, next));
  const tensors: TinyModel["tensors"] = { "src_embed.0.lut.weight": matrix(vocabulary.length, d) };
  const linear = (name: string, from: number, to: number) => {
    tensors[`${name}.weight`] = matrix(to, from);
    tensors[`${name}.bias`] = matrix(1, to);
  };
  for (const [stack, parts] of Object.entries({
    encoder: ["self_attn"],
    decoder: ["self_attn", "src_attn"],
  })) {
    for (const part of parts)
      for (let i = 0; i < 4; i++) linear(`${stack}.layers.0.${part}.linears.${i}`, d, d);
    linear(`${stack}.layers.0.feed_forward.w_1`, d, wide);
    linear(`${stack}.layers.0.feed_forward.w_2`, wide, d);
    for (let i = 0; i <= parts.length; i++) {
      tensors[`${stack}.layers.0.sublayer.${i}.norm.weight`] = matrix(1, d);
      tensors[`${stack}.layers.0.sublayer.${i}.norm.bias`] = matrix(1, d);
    }
  }
  tensors["generator.proj.bias"] = matrix(1, vocabulary.length);
  const sentences = ["a cat runs", "the dog runs"].map((text) => text.split(" "));
  return { h: 2, d_model: d, eps: 1e-5, vocabulary, sentences, tensors };
}

const tiny = new Tiny(model());
const changes = { words: ["a", "cat", "runs"], hidden: [2], hiddenFrom: "all" as const, leftOut: [] };
const found = tiny.compute(changes);

test("every number equals the formula that is written beside it", () => {
  const written = (num: Num) =>
    formulaOf(num)
      .map((part) => (part instanceof Num ? `(${part.value})` : part))
      .join("")
      .replace(/√\(/g, "sqrt((")
      .replaceAll("·", "*")
      .replaceAll("−", "-")
      .replaceAll("²", "**2");
  let checked = 0;
  for (const num of reached(found.probabilities.flat())) {
    const formula = written(num)
      .replace(/√(\d+)/g, "Math.sqrt($1)")
      .replace(/^sqrt\(/, "Math.sqrt");
    if (!formula) continue;
    const { exp, max, sin, cos } = Math;
    const value = new Function("exp", "max", "sin", "cos", `return ${formula}`)(exp, max, sin, cos);
    // The formula of a deviation leaves out epsilon, which is too small to be seen.
    const near = num.how.op === "deviation" ? 1e-3 : 1e-9;
    assert.ok(Math.abs(value - num.value) < near, `${num.name.part}: ${formula} = ${num.value}`);
    checked++;
  }
  assert.ok(checked > 500);
});

test("from the probabilities a way leads back to every weight", () => {
  const all = tiny.compute({ ...changes, hidden: [] });
  const given = [...reached(all.probabilities.flat())].filter(({ how }) => how.op === "given");
  assert.equal(given.length, Object.values(tiny.model.tensors).flat(2).length);
});

test("a model that never ends stops", () => {
  assert.ok(found.written.length <= MOST);
});

test("every step has its words in each language, a place, and a first number that is made there or before", () => {
  const view: View = { tiny, of: found, row: 1, read: 0, head: 0, choose: () => {} };
  const numbers = reached(found.probabilities.flat());
  for (const code of Object.keys(LANGUAGES)) {
    speak(code);
    assert.equal(texts.code, code);
    assert.deepEqual(
      STEPS.map(({ id }) => id),
      Object.keys(texts.tell),
    );
    for (const step of STEPS) {
      assert.ok(texts.tell[step.id].title && texts.tell[step.id].text(factsOf(view, step.id)));
      const first = step.first(view);
      if (step.id !== "words") assert.ok(first && (numbers.has(first) || termsOf(first).length), step.id);
    }
  }
});

test("a number names the step where it is made", () => {
  const ids = new Set<string>(STEPS.map(({ id }) => id));
  for (const { name, how } of reached(found.probabilities.flat()))
    assert.ok(how.op === "given" ? name.step === "" : ids.has(name.step), `${name.part} in ${name.step}`);
});
