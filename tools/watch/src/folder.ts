// A model of the reader's own, from the folder that `annotated train` writes. It may come from a stranger: a folder
// that does not fit is refused with one line, and what it holds becomes numbers and text, nothing else.

import { texts } from "./language.ts";
import { floats, type PageModel } from "./translator.ts";

// What the page can compute, as annotated/translation/watch/__init__.py has it.
const NEEDED = {
  variant: "paper",
  norm_first: false,
  activation: "relu",
  positions: "sinusoidal",
  tied_embeddings: "all",
};
const MOST = 20_000_000; // parameters

type Json = Record<string, unknown>;
type Fields = Record<number, number | Uint8Array>; // of a message of protocol buffers, by their numbers

// Throws an Error whose message says what the page cannot use.
export async function readFolder(files: Iterable<File>): Promise<PageModel> {
  // A run's checkpoints lie deeper and have files of the same names.
  const top = [...files].filter((file) => file.webkitRelativePath.split("/").length <= 2);
  const open = (name: string) => {
    const file = top.find((one) => one.name === name);
    if (!file) throw new Error(texts.folder.missing(name));
    if (file.size > 5 * MOST) throw new Error(texts.folder.tooLarge(MOST / 1e6));
    return file;
  };
  const json = async (name: string) => parse(await open(name).text(), name);

  const { format, model, tokenizers } = await json("config.json");
  if (format !== 1 || !isObject(model) || !isObject(tokenizers)) throw new Error(texts.folder.noModel);
  for (const [name, value] of Object.entries(NEEDED)) {
    const own = model[name] ?? (name === "variant" ? value : undefined);
    if (own !== value) throw new Error(texts.folder.needs(name, brief(value), brief(own)));
  }
  const isSize = (value: number) => Number.isInteger(value) && value > 0;
  const setting = (name: string, fits = isSize) => {
    const value = model[name];
    if (typeof value === "number" && fits(value)) return value;
    throw new Error(texts.folder.setting(name, brief(value)));
  };
  const [N, d_model, d_ff] = [setting("N"), setting("d_model"), setting("d_ff")];
  const h = setting("h", (heads) => isSize(heads) && d_model % heads === 0);
  const eps = setting("layer_norm_eps", (value) => value >= 0 && value < 1);
  const vocabularies = [setting("src_vocab"), setting("tgt_vocab")];

  const joint = tokenizers.src === "tokenizer" && tokenizers.tgt === "tokenizer";
  if (!joint) throw new Error(texts.folder.twoVocabularies);
  const { kind, sha256 } = await json("tokenizer.json");
  if (kind !== "sentencepiece") throw new Error(texts.folder.kind(brief(kind)));
  const trained = top.some((file) => file.name === "training.json") ? await json("training.json") : {};
  if (trained.tokenized) throw new Error(texts.folder.tokenized);

  const vocabulary = new Uint8Array(await open("tokenizer.model").arrayBuffer());
  const pieces = readPieces(vocabulary);
  const other = vocabularies.find((size) => size !== pieces.length);
  if (other) throw new Error(texts.folder.pieces(pieces.length, other));
  const shapes = shapesOf(N, d_model, d_ff, pieces.length);
  const { tensors, weights, sums } = await readTensors(open("model.safetensors"), shapes);

  // A vocabulary of as many other pieces would give other words, and nothing else would show it.
  const found = await digest(vocabulary);
  const saved = await digest(new TextEncoder().encode(`{"kind": "sentencepiece", "sha256": "${found}"}`));
  if (found && (found !== sha256 || saved !== (/tokenizer\.json=(\w+)/.exec(sums)?.[1] ?? saved)))
    throw new Error(texts.folder.otherTokenizer);

  const breaks = pieces.flatMap(([piece], i) => (/[\r\n]|^<0x0[AD]>$/.test(piece) ? [i] : []));
  return { N, h, d_model, eps, forbidden: [0, 2, ...breaks], pieces, tensors, weights };
}

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null;
const brief = (value: unknown) => String(JSON.stringify(value)).slice(0, 50);

function parse(text: string, name: string): Json {
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch {}
  throw new Error(texts.folder.damaged(name));
}

// In hexadecimal; nothing where a page may not compute it, as one from plain http.
const digest = async (bytes: Uint8Array<ArrayBuffer>) =>
  Array.from(new Uint8Array((await crypto.subtle?.digest("SHA-256", bytes)) ?? []), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

// ---- Weights (safetensors: the header's length, a header in JSON, the numbers)

const TYPES = new Map<unknown, [size: number, read: (bytes: ArrayBuffer) => Float32Array]>([
  ["F32", [4, (bytes) => new Float32Array(bytes)]],
  ["F16", [2, (bytes) => floats(new Uint16Array(bytes))]],
  ["BF16", [2, (bytes) => new Float32Array(Uint32Array.from(new Uint16Array(bytes), (x) => x << 16).buffer)]],
]);

// One after the other, because settings may ask for any number of layers.
function* shapesOf(N: number, d: number, d_ff: number, vocabulary: number): Generator<[string, number[]]> {
  yield ["src_embed.0.lut.weight", [vocabulary, d]];
  yield ["generator.proj.bias", [vocabulary]];
  for (let i = 0; i < N; i++) {
    for (const [stack, attentions] of [
      ["encoder", ["self_attn"]],
      ["decoder", ["self_attn", "src_attn"]],
    ] as const) {
      const linear = function* (name: string, out: number, into: number): Generator<[string, number[]]> {
        yield [`${stack}.layers.${i}.${name}.weight`, [out, into]];
        yield [`${stack}.layers.${i}.${name}.bias`, [out]];
      };
      for (const name of attentions)
        for (const j of [0, 1, 2, 3]) yield* linear(`${name}.linears.${j}`, d, d);
      yield* linear("feed_forward.w_1", d_ff, d);
      yield* linear("feed_forward.w_2", d, d_ff);
      for (let j = 0; j <= attentions.length; j++)
        for (const name of ["weight", "bias"]) yield [`${stack}.layers.${i}.sublayer.${j}.norm.${name}`, [d]];
    }
  }
}

async function readTensors(file: File, shapes: Iterable<[string, number[]]>) {
  const damaged = new Error(texts.folder.damaged(file.name));
  if (file.size < 8) throw damaged;
  const length = Number(new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
  if (8 + length > file.size) throw damaged;
  const { __metadata__, ...header } = parse(await file.slice(8, 8 + length).text(), file.name);
  const data = await file.slice(8 + length).arrayBuffer();
  const tensors: Record<string, number[]> = {};
  const parts: [numbers: Float32Array, start: number][] = [];
  let total = 0;
  for (const [name, shape] of shapes) {
    const own = header[name];
    const [size, read] = (isObject(own) && TYPES.get(own.dtype)) || [];
    if (!isObject(own) || JSON.stringify(own.shape) !== JSON.stringify(shape) || !size || !read)
      throw new Error(texts.folder.tensor(name));
    const count = shape.reduce((a, b) => a * b, 1);
    total += count;
    if (total > MOST) throw new Error(texts.folder.tooLarge(MOST / 1e6));
    const [from, to] = Array.isArray(own.data_offsets) ? own.data_offsets : [];
    if (!Number.isInteger(from) || from < 0 || to - from !== size * count || to > data.byteLength)
      throw damaged;
    const numbers = read(data.slice(from, to));
    if (!numbers.every(Number.isFinite)) throw new Error(texts.folder.notFinite(name));
    tensors[name] = shape;
    parts.push([numbers, total - count]);
  }
  const surplus = Object.keys(header).find((name) => !Object.hasOwn(tensors, name));
  if (surplus !== undefined) throw new Error(texts.folder.tensor(brief(surplus)));
  const weights = new Float32Array(total);
  for (const [numbers, start] of parts) weights.set(numbers, start);
  return { tensors, weights, sums: isObject(__metadata__) ? String(__metadata__.sha256) : "" };
}

// ---- Pieces (SentencePiece's file: a message of protocol buffers)

const NORMAL = 1;
const KINDS = [NORMAL, 2, 3, 6]; // and unknown, control, byte; what a user defined is never cut
const BPE = 2;

function readPieces(bytes: Uint8Array): PageModel["pieces"] {
  const pieces: PageModel["pieces"] = [];
  const [training, normalization]: Fields[] = [{}, {}];
  try {
    for (const [field, value] of fieldsOf(bytes)) {
      if (field === 2) Object.assign(training, Object.fromEntries(fieldsOf(value as Uint8Array)));
      if (field === 3) Object.assign(normalization, Object.fromEntries(fieldsOf(value as Uint8Array)));
      if (field !== 1) continue;
      const {
        1: text,
        2: score,
        3: kind = NORMAL,
      } = Object.fromEntries(fieldsOf(value as Uint8Array)) as Fields;
      if (!KINDS.includes(kind as number)) throw new Error();
      const piece = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text as Uint8Array);
      const [number] = new Float32Array((score as Uint8Array).slice().buffer);
      pieces.push([piece, kind === NORMAL ? number : null]);
    }
  } catch {
    throw new Error(texts.folder.damaged("tokenizer.model"));
  }
  const symbols = pieces.slice(0, 4).map(([piece]) => piece);
  const plain = normalization[4] === 0 && !(normalization[2] as Uint8Array | undefined)?.length;
  if (symbols.join() !== "<s>,</s>,<blank>,<unk>" || training[3] !== BPE || training[35] !== 1 || !plain)
    throw new Error(texts.folder.otherEncoding);
  return pieces;
}

function* fieldsOf(bytes: Uint8Array): Generator<[number, number | Uint8Array]> {
  let at = 0;
  const number = () => {
    for (let value = 0, scale = 1; at < bytes.length; scale *= 128) {
      value += (bytes[at] & 127) * scale;
      if (bytes[at++] < 128) return value;
    }
    throw new Error();
  };
  while (at < bytes.length) {
    const key = number();
    const [field, wire] = [Math.floor(key / 8), key % 8];
    if (wire === 0) {
      yield [field, number()];
      continue;
    }
    const size = { 1: 8, 2: wire === 2 ? number() : 0, 5: 4 }[wire] ?? Number.NaN;
    if (!(at + size <= bytes.length)) throw new Error();
    at += size;
    yield [field, bytes.subarray(at - size, at)];
  }
}
