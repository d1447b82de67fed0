// What the page does besides the model: links, numbers in words, the layout of the search.
// The model itself is held to PyTorch by tests/watch/test_inside.py.

import assert from "node:assert/strict";
import { test } from "node:test";
import { apart, labels, layOut } from "../src/beam.tsx";
import { partName, partNames, sameWords } from "../src/breaking.tsx";
import { scaleOf } from "../src/drawing.tsx";
import { describe } from "../src/heads.ts";
import { percent, shown } from "../src/numbers.ts";
import type { Candidate } from "../src/search.ts";
import { distinct, spelled } from "../src/spelling.ts";
import { beginning, FIRST, goingTo, readLink, type State, writeLink } from "../src/state.ts";
import { onTour, STOPS, TOUR } from "../src/stops.tsx";
import { Tokenizer } from "../src/tokenizer.ts";
import { similarity } from "../src/transformer.ts";
import type { Look } from "../src/translator.ts";
import {
  headOf,
  headOn,
  largestOf,
  layerOf,
  meanOfHeads,
  namesOf,
  positionOf,
  sameRow,
  tellingPosition,
  type View,
} from "../src/view.ts";

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
  temperature: 2.5,
  language: "zh",
};

test("a link holds all that was chosen", () => {
  assert.deepEqual(readLink(`#${writeLink(state)}`), state);
  assert.deepEqual(readLink(`#${writeLink(FIRST)}`), FIRST);
});

test("a form's link is a sentence, with no token chosen in it and everything else as at first", () => {
  assert.deepEqual(readLink("?s=A+dog+runs."), { ...FIRST, ...beginning("A dog runs.") });
});

test("a link holds that no token was chosen, on either side", () => {
  for (const [encoder, decoder] of [
    [null, null],
    [null, 3],
    [3, null],
  ]) {
    const chosen = { ...state, position: { encoder, decoder }, key: null };
    assert.deepEqual(readLink(`#${writeLink(chosen)}`), chosen);
  }
});

test("where no layer was chosen, encoder-decoder attention opens on its last, and a link holds neither", () => {
  const opensOn = (stop: string, layer: number | null = null, layers = 4) =>
    layerOf({ ...state, stop, layer }, layers) + 1;
  const headAt = (stop: string, head: number | null = null, heads = 4) =>
    headOn({ ...state, stop, head }, heads) + 1;
  const stops = "encoder-weights decoder-heads cross-projections encoder-network decoder-network".split(" ");
  const opened = stops.map((stop) => opensOn(stop));
  assert.deepEqual(opened, [2, 2, 4, 3, 1]);
  assert.deepEqual([opensOn("cross-heads", 1), opensOn("cross-heads", 9)], [2, 4]);
  assert.equal(opensOn("encoder-weights", null, 1), 1);
  assert.deepEqual([headAt("encoder-heads"), headAt("cross-weights"), headAt("cross-heads", 3)], [3, 2, 4]);
  assert.deepEqual([headAt("encoder-heads", 9), headAt("encoder-heads", null, 1)], [4, 1]);
  const open = readLink(writeLink({ ...state, layer: null, head: null }));
  assert.deepEqual([open.layer, open.head], [null, null]);
  assert.ok(!/layer=|head=/.test(writeLink(FIRST)));
});

test("what was chosen in one attention is not taken into another, and a temperature stays at its stop", () => {
  const after = (stop: string) => ({ ...state, ...goingTo(stop, state.stop) });
  const [within, beyond] = [after("cross-weights"), after("encoder-heads")];
  assert.deepEqual([within.layer, within.head, within.key], [state.layer, state.head, state.key]);
  assert.deepEqual([beyond.layer, beyond.head, beyond.key], [null, null, null]);
  assert.deepEqual([within.temperature, beyond.temperature], [1, 1]);
});

test("a stop beside the tour leads back to the one that it belongs to", () => {
  for (const id of TOUR) assert.equal(onTour(id), id);
  for (const [stop, told] of Object.entries({
    "cross-heads": "cross-weights",
    "decoder-projections": "decoder-weights",
    "encoder-norm2": "encoder-network",
    "decoder-positions": "decoder-pieces",
    "decoder-norm3": "cross-weights",
  }))
    assert.equal(onTour(stop), told);
});

const pieces = "<s> </s> ▁Two ▁girls . ▁Zwei ▁Mädchen".split(" ");
const look = { source: [2, 3, 4, 1], target: [0, 5, 6, 4], written: [5, 6, 4, 1] };
const viewOf = (position: State["position"]) =>
  ({ state: { ...state, position }, look, whole: look, tokenizer: { pieces } }) as unknown as View;

test("a position of the decoder is called by what it reads and by what it writes", () => {
  const view = viewOf({ encoder: 0, decoder: 0 });
  assert.equal(namesOf(view, "encoder").join(" "), "Two girls . ‹end›");
  assert.equal(namesOf(view, "decoder").join(", "), "‹start› → Zwei, Zwei → Mädchen, Mädchen → ., . → ‹end›");
});

test("in a new sentence the longest word is at hand: read in the encoder, written in the decoder", () => {
  const view = viewOf({ encoder: null, decoder: null });
  assert.deepEqual([positionOf(view, "encoder"), positionOf(view, "decoder")], [1, 1]);
  const chosen = viewOf({ encoder: 2, decoder: 9 });
  assert.deepEqual([positionOf(chosen, "encoder"), positionOf(chosen, "decoder")], [2, 3]);
  assert.equal(tellingPosition([".", "<0xE7>", "▁", "</s>"]), 0);
});

test("in a broken model's sentence the row that writes the same token is at hand", () => {
  assert.equal(sameRow(2, [5, 6, 4, 1], [6, 4, 1]), 1);
  assert.equal(sameRow(2, [5, 6, 5, 1], [5, 6, 5, 4, 1]), 2);
  assert.equal(sameRow(1, [5, 6, 4, 1], [5, 7, 1]), 1);
  const broken = { ...look, target: [0, 6], written: [6, 1] };
  const view = { ...viewOf({ encoder: null, decoder: null }), look: broken } as unknown as View;
  assert.equal(positionOf(view, "decoder"), 0);
});

test("the same words of a broken model are told with how sure it is, other words are not", () => {
  const found = (text: string, chances: number[]) =>
    ({
      ended: [{ text }],
      written: chances.map(() => 0),
      trace: { generator: chances.map((chance) => Float32Array.of(Math.log(chance))) },
    }) as unknown as Look;
  const whole = found("Hund.", [0.9, 0.4]); // the root of 0.36
  assert.equal(sameWords(whole, found("Hund.", [0.3, 0.3])), "the same words, but less sure: 60% → 30%");
  assert.equal(sameWords(whole, found("Hund.", [0.8, 0.8])), "the same words, and surer: 60% → 80%");
  assert.equal(sameWords(whole, found("Hund.", [0.6, 0.6])), "the same words, just as sure: 60%");
  assert.equal(sameWords(whole, found("Katze.", [0.9, 0.4])), "");
});

test("translations that read alike are told apart by the pieces in which they differ", () => {
  const pieces = "<s> </s> ▁am ▁Strand ▁Str and .".split(" ");
  const reading = (...tokens: number[]) => ({ tokens, text: "am Strand." });
  const [one, other] = [reading(2, 3, 6), reading(2, 4, 5, 6)];
  const told = [one, other, { tokens: [2, 6], text: "am." }];
  assert.equal(apart(one, told, pieces), "Strand·.");
  assert.equal(apart(other, told, pieces), "Str·and·.");
});

test("a link that makes no sense is as good as none", () => {
  assert.deepEqual(readLink("#layer=x&head=-1&beam=99&alpha=2&token=,,&begin=a&s=%20"), FIRST);
});

test("every stop of the tour is there, and every link between stops leads to one", () => {
  for (const stop of STOPS.values()) for (const [id] of stop.tabs ?? []) assert.ok(STOPS.has(id), id);
  for (const id of TOUR) assert.ok(STOPS.has(id), id);
});

test("numbers are written as a reader expects them", () => {
  assert.equal([1.234, -0.5, -10, -0.001, -Infinity].map(shown).join(), "1.23,−0.50,−10.00,0.00,−∞");
  assert.deepEqual([1, 0.5, 0.05, 0.0001, 0].map(percent), ["100%", "50%", "5.0%", "<0.1%", "0%"]);
  assert.deepEqual([0.996, 0.004, 0.9999].map(percent), ["99.6%", "0.4%", ">99.9%"]);
  assert.deepEqual(["<s>", "\u2581dog", "\u2581", "</s>"].map(spelled), ["‹start›", "dog", "␣", "‹end›"]);
  assert.deepEqual(["<0x3F>", "<0xE7>", "<0x0A>"].map(spelled), ["?", "<0xE7>", "<0x0A>"]);
});

test("pieces that differ are spelled differently, and so are tokens that are the same piece", () => {
  assert.equal(["▁roten", "roten", ".", "▁.", "12"].map(spelled).join(" "), "roten ·roten . ␣. ·12");
  assert.deepEqual(distinct(["a", "red", "a"]), ["a₀", "red", "a₂"]);
  assert.deepEqual(distinct([".", "."], [46, 9940]), [".₄₆", ".₉₉₄₀"]);
  assert.deepEqual(labels(["kleines", "kleine", "Hund"], 5), ["kl…es", "kl…ne", "Hund"]);
});

test("no two different pieces of a column have one label, and none is long", () => {
  const twins = ["Snowboarder", "Snowboardfahrer", "Snowboarder", "Mann"];
  assert.deepEqual(labels(twins, 9), ["Snowb…der", "Snowb…rer", "Snowb…der", "Mann"]);
  for (const column of [twins, ["Sonnenschirm", "Sonnenblumenschirm"]]) {
    for (const letters of [6, 9]) {
      const told = labels(column, letters);
      assert.equal(new Set(told).size, new Set(column).size);
      assert.ok(told.every((label) => label.length <= letters + 1));
    }
  }
});

test("a word that is put together from pieces is told, and no other", () => {
  const pieces = "<s> </s> <blank> <unk> ▁eine ▁Kar fe . ▁ W ort <0x3F>".split(" ");
  const tokenizer = new Tokenizer(pieces.map((piece) => [piece, null]));
  assert.equal(tokenizer.composed([4, 5, 6, 7, 8, 9, 10, 11, 1]).join(" "), "Kar,fe W,ort");
  assert.deepEqual(tokenizer.composed([4, 7, 1]), []);
});

test("a word of which a character is spelled in bytes is told with that character", () => {
  const pieces = "<s> </s> <blank> <unk> ▁ <0xC5> <0x81> uk asz ▁1 2".split(" ");
  const composed = new Tokenizer(pieces.map((piece) => [piece, null])).composed([4, 5, 6, 7, 8, 9, 10, 1]);
  assert.equal(composed.join(" "), "Ł,uk,asz 1,2");
});

test("what is left out has a name", () => {
  assert.equal(partName("decoder.layers.1.src_attn 2"), "head 3 of layer 2 in encoder-decoder attention");
  assert.equal(partName("encoder.layers.0.self_attn 0"), "head 1 of layer 1 in the encoder's self-attention");
  assert.equal(partName("mask"), "the causal mask");
  assert.equal(
    partName("decoder.layers.2.feed_forward"),
    "the feed-forward network of the decoder's layer 3",
  );
  const heads = "the causal mask, heads 1, 4 of layer 1 in the encoder's self-attention";
  assert.equal(partNames(["encoder.layers.0.self_attn 3", "mask", "encoder.layers.0.self_attn 0"]), heads);
  const many = "the positions, the causal mask, and 2 more";
  assert.equal(partNames(["positions", "mask", "scale", "residual"]), many);
});

test("similarity is the cosine of an angle", () => {
  const [x, y, none] = [Float32Array.of(3, 4), Float32Array.of(-4, 3), Float32Array.of(0, 0)];
  assert.deepEqual([similarity(x, x), similarity(x, y), similarity(x, none)], [1, 0, 0]);
});

test("a head's part of a row is its share, and the largest come first", () => {
  const row = Float32Array.of(1, 2, 3, 4, 5, 6);
  assert.deepEqual(largestOf(row, 2), [5, 4]);
  assert.deepEqual([...headOf([row], 1, 3)[0]], [3, 4]);
  assert.deepEqual([...meanOfHeads(row, 3)], [3, 4]);
  assert.deepEqual([...meanOfHeads(row, 2)], [2.5, 3.5, 4.5]);
});

test("in the tree each candidate hangs on what it continues", () => {
  const one = (token: number, parent: number, place: number | null): Candidate => ({
    ...{ token, parent, place, logProb: -token },
    fate: place === null ? "dropped" : "kept",
  });
  const steps = [
    [one(5, 0, 0), one(6, 0, 1), one(7, 0, null)],
    [one(8, 1, 0), one(9, 0, 1)],
  ];
  const parents = layOut(steps).map((column) => column.map((node) => node.before?.token ?? null));
  assert.deepEqual(parents, [
    [null, null, null],
    [6, 5],
  ]);
});

// Rows of weights in which the query i gives `share` to the key that `place` names, and the rest to all others alike.
const rowsOf = (count: number, keys: number, place: (i: number) => number, share = 0.8) =>
  Array.from({ length: count }, (_, i) =>
    Float32Array.from({ length: keys }, (_, j) => (j === place(i) ? share : (1 - share) / (keys - 1))),
  );
type Case = [told: string, place: (i: number) => number, share?: number];
const nobodyHidden = (rows: Float32Array[]) => rows.map((row) => row.map(() => 0));
const english = ["A", "dog", "runs", ".", "‹end›"];
const line = (kind: "encoder" | "cross", rows: Float32Array[], keys = english) =>
  describe(kind, { weights: rows, masked: nobodyHidden(rows), keys });

test("a head gets a line for the place that half of its rows give more than half of their weight", () => {
  const cases: Case[] = [
    ["mostly at the token itself: 5 of 5 rows", (i) => i],
    ["mostly one token back: 4 of 5 rows", (i) => i - 1],
    ["mostly two tokens back: 3 of 5 rows", (i) => i - 2],
    ["mostly one token ahead: 4 of 5 rows", (i) => i + 1],
    ["mostly at the first token: 5 of 5 rows", () => 0],
    ["mostly at ‹end› or the full stop: 5 of 5 rows", () => 3],
    ["mostly at ‹end› or the full stop: 5 of 5 rows", (i) => 3 + (i % 2)],
    ["no pattern that this page looks for", (i) => i, 0.5],
    ["mostly at one token, not the same in every row (sharp): 5 of 5 rows", (i) => [2, 4, 1, 0, 1][i]],
    ["spread over many tokens: 5 of 5 rows", (i) => i, 0.2],
  ];
  for (const [told, place, share] of cases) assert.equal(line("encoder", rowsOf(5, 5, place, share)), told);
});

test("a head that looks at all tokens of one piece is told by that piece", () => {
  const keys = ["in", "a", "red", "a", "‹end›"];
  const [one, both] = [rowsOf(5, 5, (i) => 1 + 2 * (i % 2)), rowsOf(5, 5, () => 2)];
  assert.equal(line("encoder", one, keys), "mostly at “a”: 5 of 5 rows");
  assert.equal(line("cross", both, keys), "mostly at “red”: 5 of 5 rows");
});

test("‹end› and the full stop count together, and a sentence may end without a full stop", () => {
  const both = Array.from({ length: 5 }, () => Float32Array.of(0.1, 0.1, 0.1, 0.35, 0.35));
  assert.equal(line("encoder", both), "mostly at ‹end› or the full stop: 5 of 5 rows");
  const none = rowsOf(4, 4, () => 3);
  assert.equal(line("encoder", none, ["A", "dog", "runs", "‹end›"]), "mostly at ‹end›: 4 of 4 rows");
});

test("in encoder-decoder attention places in the English are no neighbours of those in the German", () => {
  const cases: Case[] = [
    ["mostly at one English token for each (sharp): 3 of 3 rows", (i) => i],
    ["mostly at ‹end› or the full stop: 3 of 3 rows", () => 4],
    ["spread over many tokens: 3 of 3 rows", () => 0, 0.2],
  ];
  for (const [told, place, share] of cases) assert.equal(line("cross", rowsOf(3, 5, place, share)), told);
});

test("a row of the decoder in which the mask leaves one key alone has no choice, and does not count", () => {
  const keys = ["‹start›", "Ein", "Hund"];
  const weights = rowsOf(3, 3, (i) => Math.max(0, i - 1));
  const masked = weights.map((row, i) => row.map((_, j) => (j > i ? -Infinity : 0)));
  const does = (weights: Float32Array[], masked = nobodyHidden(weights), all = keys) =>
    describe("decoder", { weights, masked, keys: all });
  assert.equal(does(weights, masked), "mostly one token back: 2 of the 2 rows with a choice");
  assert.equal(does(weights), "mostly one token back: 2 of 3 rows");
  const first = rowsOf(4, 4, () => 0);
  assert.equal(does(first, nobodyHidden(first), [...keys, "rennt"]), "mostly at ‹start›: 4 of 4 rows");
});

test("colours end at the largest number, or, where few are much larger, at one that one in twenty exceeds", () => {
  const few = scaleOf([Float32Array.of(1, -4, 2), Float32Array.of(3)]);
  assert.deepEqual(few, { most: 4, largest: 4, beyond: 0 });
  const row = Float32Array.from({ length: 100 }, (_, i) => (i < 3 ? -50 : (i % 2 ? 1 : -1) * (1 + i / 200)));
  const { most, largest, beyond } = scaleOf([row]);
  assert.equal(largest, 50);
  assert.ok(most < 1.5 && beyond === 5);
  assert.equal(row.filter((x) => Math.abs(x) > most).length, beyond);
  assert.ok(scaleOf([new Float32Array(3)]).most > 0);
});
