// A folder of the reader's own: the shipped model's is read, and the same with one fault is refused for it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { readFolder } from "../src/folder.ts";

const NAMES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer.model", "training.json"];
const SHIPPED = Object.fromEntries(
  NAMES.map((name) => [name, readFileSync(`../../annotated/translation/pretrained/multi30k-en-de/${name}`)]),
);
type Files = Record<string, Uint8Array | string | null>;

const read = (changes: Files = {}) => {
  const contents = Object.entries({ ...SHIPPED, ...changes }).filter(([, content]) => content !== null);
  const files = contents.map(([path, content]) =>
    Object.assign(new File([content as BlobPart], path.split("/").at(-1) ?? ""), {
      webkitRelativePath: `own/${path}`,
    }),
  );
  return readFolder(files);
};

// The settings with others in them; `null` leaves one out.
const settings = (name: string, changes: Record<string, unknown>, of?: string): Files => {
  const found = JSON.parse(SHIPPED[name].toString());
  Object.assign(of ? found[of] : found, changes);
  return { [name]: JSON.stringify(found) };
};
const model = (changes: Record<string, unknown>) => settings("config.json", changes, "model");

type Header = Record<string, { dtype: string; shape: number[]; data_offsets: number[] }>;
const split = () => {
  const file = SHIPPED["model.safetensors"];
  const end = 8 + Number(file.readBigUInt64LE());
  return { header: JSON.parse(file.subarray(8, end).toString()) as Header, data: file.subarray(end) };
};
const joined = (header: unknown, data: Uint8Array): Files => {
  const text = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return { "model.safetensors": Buffer.concat([length, text, data]) };
};
// One tensor's entry in the header changed.
const tensor = (name: string, changes: object): Files => {
  const { header, data } = split();
  return joined({ ...header, [name]: { ...header[name], ...changes } }, data);
};
const BIAS = "generator.proj.bias";

test("the shipped model is read from its folder, also beside a checkpoint's files", async () => {
  const { N, h, d_model, pieces, tensors, weights } = await read({ "checkpoints/step-1/config.json": "{" });
  assert.deepEqual([N, h, d_model, pieces.length], [4, 4, 128, 10_000]);
  const count = Object.values(tensors).reduce((sum, shape) => sum + shape.reduce((a, b) => a * b, 1), 0);
  assert.equal(weights.length, count);
});

test("a folder with a fault is refused with one line that names it", async () => {
  const { header, data } = split();
  const pieces = SHIPPED["tokenizer.model"];
  const faults: [Files, RegExp][] = [
    ...NAMES.slice(0, 4).map((name): [Files, RegExp] => [{ [name]: null }, RegExp(`no file ${name}`)]),
    [{ "config.json": "{" }, /config.json is damaged/],
    [{ "config.json": "[1]" }, /config.json does not describe a model/],
    [settings("config.json", { format: 2 }), /does not describe a model/],
    [model({ variant: "mine" }), /variant "paper", not "mine"/],
    [model({ norm_first: true }), /norm_first false, not true/],
    [model({ activation: "<b>gelu</b>" }), /activation "relu", not "<b>gelu/],
    [model({ positions: "learned" }), /positions "sinusoidal", not "learned"/],
    [model({ tied_embeddings: "target" }), /tied_embeddings "all", not "target"/],
    [model({ N: 0 }), /N is 0/],
    [model({ N: 1e9 }), /tensor encoder.layers.4/],
    [model({ N: 3 }), /tensor ".*layers.3.*" is not/],
    [model({ h: 3 }), /h is 3/],
    [model({ d_model: "128" }), /d_model is "128"/],
    [model({ d_ff: 512 }), /w_1.weight is not what config.json asks for/],
    [model({ layer_norm_eps: null }), /layer_norm_eps is null/],
    [model({ tgt_vocab: 9000 }), /10000 pieces, and config.json asks for 9000/],
    [settings("config.json", { src: "src_tokenizer" }, "tokenizers"), /one vocabulary/],
    [settings("tokenizer.json", { kind: "words" }), /subwords, not "words"/],
    [settings("tokenizer.json", { sha256: "0" }), /not the one that was saved/],
    [settings("training.json", { tokenized: true }), /lower-cased/],
    [{ "tokenizer.model": pieces.subarray(0, 1000) }, /tokenizer.model is damaged/],
    [{ "tokenizer.model": "x" }, /tokenizer.model is damaged/],
    [{ "tokenizer.model": "" }, /not byte-pair encoding/],
    [{ "model.safetensors": "1234" }, /model.safetensors is damaged/],
    [{ "model.safetensors": "1234567890" }, /model.safetensors is damaged/],
    [joined("{", data), /model.safetensors is damaged/],
    [joined(header, data.subarray(0, 1000)), /model.safetensors is damaged/],
    [joined({ ...header, constructor: {} }, data), /tensor "constructor" is not/],
    [tensor(BIAS, { shape: [1] }), /generator.proj.bias is not/],
    [tensor(BIAS, { dtype: "I16" }), /generator.proj.bias is not/],
    [tensor(BIAS, { dtype: "constructor" }), /generator.proj.bias is not/],
    [tensor(BIAS, { dtype: "F32" }), /model.safetensors is damaged/],
    [tensor(BIAS, { data_offsets: [-2, 19998] }), /model.safetensors is damaged/],
    [tensor(BIAS, { data_offsets: "ab" }), /model.safetensors is damaged/],
    [joined(header, Buffer.alloc(data.length, 0xff)), /holds what is not a number/],
    [
      { ...model({ d_model: 2004 }), ...tensor("src_embed.0.lut.weight", { shape: [10_000, 2004] }) },
      /20 million/,
    ],
  ];
  for (const [files, line] of faults) {
    await assert.rejects(read(files), (error: Error) => {
      assert.match(error.message, line);
      assert.ok(!error.message.includes("\n") && error.message.length < 120, error.message);
      return true;
    });
  }
});
