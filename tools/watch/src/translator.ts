// The package's model in a page: text in, text out, and everything that was computed on the way.

import { type Candidate, type Hypothesis, search } from "./search.ts";
import { END, START, Tokenizer } from "./tokenizer.ts";
import { type Part, type Trace, Transformer, type Vector } from "./transformer.ts";

// What annotated/translation/watch/__init__.py writes: settings, pieces with their scores, the weights as 16-bit floats in base64;
// those of a reader's own folder are numbers already.
export interface PageModel {
  N: number;
  h: number;
  d_model: number;
  eps: number;
  forbidden: number[];
  pieces: [string, number | null][];
  tensors: Record<string, number[]>;
  weights: string | Float32Array;
}

export interface Request {
  sentence: string;
  beam: number;
  alpha: number;
  prefix: number[]; // tokens that the translation must begin with
  leftOut: Part[];
}

export interface Translation {
  source: number[]; // as the encoder reads it, the end symbol last
  ended: (Hypothesis & { text: string })[]; // the best first
  steps: Candidate[][]; // of the search
}

export interface Look extends Translation, Request {
  target: number[]; // the best translation as the decoder reads it, the start symbol first
  written: number[]; // as the decoder writes it, the end symbol last
  trace: Trace;
}

export const PAPER = { beam: 4, alpha: 0.6, prefix: [], leftOut: [] }; // section 6.1

export class Translator {
  readonly tokenizer: Tokenizer;
  private readonly transformer: Transformer;
  private readonly forbidden: number[];

  constructor(model: PageModel) {
    this.tokenizer = new Tokenizer(model.pieces);
    this.transformer = new Transformer({ ...model, tensors: unpack(model.weights, model.tensors) });
    this.forbidden = model.forbidden;
  }

  // The best translations of a sentence, and how they were found.
  translate({ sentence, beam, alpha, prefix, leftOut }: Request): Translation {
    this.transformer.leftOut = new Set(leftOut);
    const source = [...this.tokenizer.encode(sentence), END];
    const memory = this.transformer.encode(source);
    const settings = { beam, alpha, prefix, forbidden: this.forbidden };
    const { ended, steps } = search(this.transformer, memory, source.length, settings);
    return {
      source,
      ended: ended.map((one) => ({ ...one, text: this.tokenizer.decode(one.tokens) })),
      steps,
    };
  }

  // The same and what was asked, with what each layer gave while the best was read and written.
  look(request: Request): Look {
    const translation = this.translate(request);
    const { source, ended } = translation;
    const target = [START, ...ended[0].tokens];
    const trace = this.trace(source, target, request.leftOut);
    if (request.leftOut.includes("mask")) Object.assign(trace, this.stepByStep(source, target));
    return { ...request, ...translation, target, written: [...ended[0].tokens, END], trace };
  }

  // What the generator gives while `target` is being written: each step reads only what is there so far. Without the
  // causal mask that is not what it gives for the finished `target`, of which each position sees all.
  stepByStep(source: number[], target: number[]): Trace {
    const model = this.transformer;
    const memory = model.encode(source);
    const last = target.map((_, i) => {
      const [states] = model.decode(target.slice(0, i + 1), 0, model.emptyCache(), memory);
      return states[i];
    });
    return this.record(() => model.generate(last));
  }

  // What each layer gives while the encoder reads `source` and the decoder reads `target`, all of it at once.
  trace(source: number[], target: number[], leftOut: Part[] = []): Trace {
    const model = this.transformer;
    model.leftOut = new Set(leftOut);
    return this.record(() => {
      const [states] = model.decode(target, 0, model.emptyCache(), model.encode(source));
      model.generate(states);
    });
  }

  private record(compute: () => void): Trace {
    const trace: Trace = {};
    this.transformer.trace = trace;
    compute();
    this.transformer.trace = null;
    return trace;
  }
}

// The tensors of a model, which stand one after the other.
function unpack(weights: PageModel["weights"], shapes: PageModel["tensors"]): Record<string, Vector> {
  const all = typeof weights === "string" ? decode(weights) : weights;
  let start = 0;
  const tensors = Object.entries(shapes).map(([name, shape]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    start += size;
    return [name, all.subarray(start - size, start)];
  });
  return Object.fromEntries(tensors);
}

// 16-bit floats from base64.
function decode(text: string): Float32Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return floats(new Uint16Array(bytes.buffer));
}

// 16-bit floats by their bits: sign, five bits of exponent, ten of fraction.
export function floats(halves: Uint16Array): Float32Array {
  const values = new Float32Array(halves.length);
  for (let i = 0; i < values.length; i++) values[i] = HALVES[halves[i]];
  return values;
}

const HALVES = Float32Array.from({ length: 0x10000 }, (_, half) => {
  const [exponent, fraction] = [(half >> 10) & 31, half & 1023];
  const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  const value = exponent < 31 ? size : fraction ? Number.NaN : Infinity;
  return half & 0x8000 ? -value : value;
});
