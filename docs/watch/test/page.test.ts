// What the page does besides the model: links, numbers in words, the layout of the search.
// The model itself is held to PyTorch by tests/inside/test_inside.py.

import assert from "node:assert/strict";
import { test } from "node:test";
import { layOut } from "../src/beam.tsx";
import { partName } from "../src/breaking.tsx";
import { percent, shown, spelled } from "../src/drawing.tsx";
import type { Candidate } from "../src/search.ts";
import { FIRST, readLink, type State, writeLink } from "../src/state.ts";
import { STOPS, TOUR } from "../src/stops.tsx";
import { Tokenizer } from "../src/tokenizer.ts";
import { moments, softmax } from "../src/transformer.ts";
import { headOf, largestOf } from "../src/view.ts";

const state: State = {
  sentence: "Zwei & drei #1, 100%?",
  stop: "cross-heads",
  layer: 3,
  head: 1,
  position: { encoder: 2, decoder: 7 },
  key: 4,
  prefix: [12, 345],
  leftOut: ["positions", "decoder.layers.1.src_attn 2"],
  beam: 6,
  alpha: 0.3,
};

test("a link holds all that was chosen", () => {
  assert.deepEqual(readLink(`#${writeLink(state)}`), state);
  assert.deepEqual(readLink(`#${writeLink(FIRST)}`), FIRST);
});

test("a form's link is a sentence with everything else as at first", () => {
  assert.deepEqual(readLink("?s=A+dog+runs."), { ...FIRST, sentence: "A dog runs." });
});

test("a link that makes no sense is as good as none", () => {
  assert.deepEqual(readLink("#layer=x&head=-1&beam=99&alpha=2&token=,,&begin=a&s=%20"), FIRST);
});

test("every stop of the tour is there, and every link between stops leads to one", () => {
  for (const stop of STOPS.values()) for (const [id] of stop.tabs ?? []) assert.ok(STOPS.has(id), id);
  for (const id of TOUR) assert.ok(STOPS.has(id), id);
});

test("numbers are written as a reader expects them", () => {
  assert.deepEqual([1.234, -0.5, -Infinity].map(shown), ["1.23", "−0.50", "−∞"]);
  assert.deepEqual([1, 0.5, 0.05, 0.0001, 0].map(percent), ["100%", "50%", "5.0%", "<0.1%", "0%"]);
  assert.deepEqual(["<s>", "\u2581dog", "\u2581", "</s>"].map(spelled), ["‹start›", "dog", "␣", "‹end›"]);
});

test("a word that is put together from pieces is told, and no other", () => {
  const pieces = "<s> </s> <blank> <unk> ▁eine ▁Kar fe . ▁ W ort <0x3F>".split(" ");
  const composed = new Tokenizer(pieces.map((piece, i) => [piece, i < 4 ? null : -i])).composed([
    4, 5, 6, 7, 8, 9, 10, 11, 1,
  ]);
  assert.deepEqual(composed, [
    ["Kar", "fe"],
    ["W", "ort"],
  ]);
  assert.deepEqual(new Tokenizer(pieces.map((piece) => [piece, null])).composed([4, 7, 1]), []);
});

test("what is left out has a name", () => {
  assert.equal(partName("decoder.layers.1.src_attn 2"), "head 3 of layer 2 in encoder-decoder attention");
  assert.equal(partName("encoder.layers.0.self_attn 0"), "head 1 of layer 1 in the encoder's self-attention");
  assert.equal(partName("mask"), "the causal mask");
});

test("a softmax sums to 1, whatever is hidden or large", () => {
  for (const scores of [[1, 2, 3], [1000, -Infinity, 999], [0]]) {
    const weights = softmax(Float32Array.from(scores));
    assert.ok(Math.abs(weights.reduce((a, b) => a + b) - 1) < 1e-6);
    assert.deepEqual(
      largestOf(weights, scores.length),
      scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a]),
    );
  }
});

test("moments are those of the definition", () => {
  assert.deepEqual(moments(Float32Array.of(1, 3)), { mean: 2, variance: 1 });
});

test("a head's part of a row is its share", () => {
  const row = Float32Array.of(1, 2, 3, 4, 5, 6);
  assert.deepEqual([...headOf([row], 1, 3)[0]], [3, 4]);
});

test("in the tree each candidate hangs on what it continues", () => {
  const one = (token: number, parent: number, place: number | null): Candidate => ({
    token,
    parent,
    place,
    logProb: -token,
    fate: place === null ? "dropped" : "kept",
  });
  const [first, second] = layOut([
    [one(5, 0, 0), one(6, 0, 1), one(7, 0, null)],
    [one(8, 1, 0), one(9, 0, 1)],
  ]);
  assert.deepEqual(
    second.map((node) => node.before?.token),
    [6, 5],
  );
  assert.deepEqual(
    first.map((node) => node.before),
    [null, null, null],
  );
});
