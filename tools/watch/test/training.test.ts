// The training of a tiny model: its weights after each update, and the moments from which on something stays so. That the
// numbers are PyTorch's, tests/plots/test_steps.py holds.

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { type Recorded, Training } from "../src/steps/training.ts";

const STEPS = [
  [10, -20, 1],
  [0, 0, 300],
];

// Three updates of two weights; the first words are ein and eine, of the first sentence and of the second.
function recorded(): Recorded {
  const chances = [
    [[0.5, 0.2], [0.5, 0.4]], // biome-ignore format: a row an update
    [
      [0.6, 0.3],
      [0.3, 0.4],
    ],
    [
      [0.4, 0.5],
      [0.6, 0.3],
    ],
    [
      [0.7, 0.2],
      [0.3, 0.6],
    ],
  ];
  return {
    h: 1,
    d_model: 1,
    eps: 0,
    vocabulary: [],
    sentences: [
      ["a", "dog"],
      ["a", "cat"],
      ["the", "cat"],
    ],
    targets: [
      ["ein", "Hund"],
      ["eine", "Katze"],
      ["die", "Katze"],
    ],
    tensors: { first: [[1]], second: [[-0.5]] },
    decimals: 2,
    steps: Buffer.from(deflateSync(new Uint8Array(new Int16Array(STEPS.flat()).buffer))).toString("base64"),
    losses: [4, 3, 2, 1],
    firsts: ["ein", "eine", "die"],
    chances: chances.map((rows) => [...rows, [0, 0]].map((row) => [...row, 0.9])),
    right: [
      [false, true, false],
      [true, false, true],
      [true, true, true],
      [true, true, false],
    ],
  };
}

test("the weights after an update are the first ones and all that was added", async () => {
  const training = await Training.unpack(recorded());
  const weights = [0, 1, 2, 3].map((update) => Object.values(training.after(update).tensors).flat(2));
  assert.deepEqual(weights, [
    [1, -0.5],
    [1.1, -0.5],
    [0.9, -0.5],
    [0.91, 2.5],
  ]);
});

test("a moment is that from which on something holds to the end", async () => {
  const training = await Training.unpack(recorded());
  assert.deepEqual(training.rivalsOf(0), ["eine"]);
  assert.deepEqual(training.momentsOf(0), { ahead: 3, right: 1, all: null });
  assert.deepEqual(training.momentsOf(1), { ahead: 3, right: 2, all: null });
  assert.deepEqual(training.momentsOf(2), { ahead: 0, right: null, all: null }); // it has no rival
});
