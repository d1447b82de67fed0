// The whole computation of a sentence in a model small enough to print: every number of it, in float64, each with what
// it is made from. Layers have the names that PyTorch gives them; sections are the paper's.

import type { Part } from "../transformer.ts";
import { type How, Num } from "./num.ts";

export interface TinyModel {
  h: number;
  d_model: number;
  eps: number;
  vocabulary: string[]; // the start symbol first, then the end symbol
  sentences: string[][];
  tensors: Record<string, number[][]>; // a vector is one row
}

export type Rows = Num[][];

export interface Attention {
  queries: Rows[]; // of each head, as all that follow
  keys: Rows[];
  values: Rows[];
  products: Rows[];
  scores: Rows[];
  weights: Rows[];
  heads: Rows[];
  joined: Rows;
  output: Rows;
}

export interface Normed {
  sum: Rows;
  mean: Rows;
  deviation: Rows;
  rows: Rows;
}

export interface Network {
  inner: Rows;
  fired: Rows;
  output: Rows;
}

export interface Inputs {
  tokens: number[];
  words: string[];
  looked: Rows; // rows of the table
  embedded: Rows;
  waves: Rows;
  x: Rows;
}

export interface Computation {
  source: Inputs;
  encoder: Attention;
  encoderNorms: [Normed, Normed];
  encoderNetwork: Network;
  memory: Rows;
  target: Inputs; // what the decoder reads
  masked: Attention;
  cross: Attention;
  decoderNorms: [Normed, Normed, Normed];
  decoderNetwork: Network;
  states: Rows;
  logits: Rows;
  probabilities: Rows;
  written: number[]; // the token that each row writes
}

// What a reader may change.
export interface Changes {
  words: string[];
  hidden: number[]; // places of source words that nobody looks at,
  hiddenFrom: "decoder" | "all"; // or only the decoder does not
  leftOut: Part[]; // "positions", "scale", "encoder.layers.0.self_attn 1"
}

const START = 0;
const END = 1;
export const MOST = 6; // tokens that the decoder reads

export class Tiny {
  private readonly matrices = new Map<string, Rows>();

  constructor(readonly model: TinyModel) {
    for (const [name, rows] of Object.entries(model.tensors)) {
      const nameOf = (i: number, j: number) =>
        name === TABLE
          ? { part: "table", row: model.vocabulary[i], column: `${j + 1}` }
          : {
              part: SYMBOLS[/(linears\.\d|w_\d)\.weight$/.exec(name)?.[1] ?? ""] ?? "",
              row: `${j + 1}`,
              column: `${i + 1}`,
            };
      const made = rows.map((row, i) =>
        row.map((value, j) => new Num({ op: "given", value }, { step: "", ...nameOf(i, j) })),
      );
      this.matrices.set(name, made);
    }
  }

  get table(): Rows {
    return this.matrix(TABLE);
  }

  get weights(): Num[] {
    return [...this.matrices.values()].flat(2);
  }

  // What PyTorch calls weight[i][j] stands in row j and column i of the paper's matrix.
  columns(name: string): Rows {
    const weight = this.matrix(`${name}.weight`);
    return weight[0].map((_, j) => weight.map((row) => row[j]));
  }

  private matrix(name: string): Rows {
    const found = this.matrices.get(name);
    if (!found) throw new Error(`the model has no tensor ${name}`);
    return found;
  }

  // Read the sentence once; then write token by token, always the likeliest, up to the end symbol.
  compute(changes: Changes): Computation {
    const { vocabulary } = this.model;
    const tokens = changes.words.map((word) => vocabulary.indexOf(word));
    const read = [START];
    for (;;) {
      const found = new Pass(this, changes).run(tokens, read);
      const next = found.written[read.length - 1];
      if (next === END || read.length === MOST) return found;
      read.push(next);
    }
  }

  // The same of given tokens on both sides.
  trace(source: number[], target: number[], changes: Changes): Computation {
    return new Pass(this, changes).run(source, target);
  }

  vector(name: string): Num[] {
    return this.matrix(name)[0];
  }
}

const TABLE = "src_embed.0.lut.weight";
const SYMBOLS: Record<string, string> = {
  "linears.0": "W^Q",
  "linears.1": "W^K",
  "linears.2": "W^V",
  "linears.3": "W^O",
  w_1: "W_1",
  w_2: "W_2",
};

class Pass {
  constructor(
    private readonly tiny: Tiny,
    private readonly changes: Changes,
  ) {}

  run(source: number[], target: number[]): Computation {
    const { hidden, hiddenFrom } = this.changes;
    const open = (_: number, j: number) => !hidden.includes(j);
    const inputs = this.embed(source, "embedding", "positions");
    const encoderSees = hiddenFrom === "all" ? open : () => true;
    const encoder = this.attend("encoder.layers.0.self_attn", inputs, inputs, encoderSees, {
      query: "query",
      key: "keys",
      product: "products",
      score: "scores",
      weight: "weights",
      head: "mean",
      attention: "join",
    });
    const norm1 = this.addAndNorm("encoder.layers.0.sublayer.0", inputs.x, encoder.output, inputs.words, [
      "residual",
      "norm",
    ]);
    const network = this.network("encoder.layers.0.feed_forward", norm1.rows, inputs.words, [
      "network",
      "network2",
    ]);
    const norm2 = this.addAndNorm("encoder.layers.0.sublayer.1", norm1.rows, network.output, inputs.words, [
      "memory",
      "memory",
    ]);
    const memory = { x: norm2.rows, words: inputs.words };

    const read = this.embed(target, "reading", "reading");
    const same = (step: string) =>
      ({
        query: step,
        key: step,
        product: step,
        score: step,
        weight: step,
        head: step,
        attention: step,
      }) as Steps;
    const masked = this.attend("decoder.layers.0.self_attn", read, read, (i, j) => j <= i, {
      ...same("masked"),
      attention: "masked2",
    });
    const y1 = this.addAndNorm("decoder.layers.0.sublayer.0", read.x, masked.output, read.words, [
      "masked2",
      "masked2",
    ]);
    const cross = this.attend("decoder.layers.0.src_attn", { x: y1.rows, words: read.words }, memory, open, {
      ...same("cross"),
      attention: "cross2",
    });
    const y2 = this.addAndNorm("decoder.layers.0.sublayer.1", y1.rows, cross.output, read.words, [
      "cross2",
      "cross2",
    ]);
    const last = this.network("decoder.layers.0.feed_forward", y2.rows, read.words, ["state", "state"]);
    const y3 = this.addAndNorm("decoder.layers.0.sublayer.2", y2.rows, last.output, read.words, [
      "state",
      "state",
    ]);

    const { vocabulary } = this.tiny.model;
    const bias = this.tiny.vector("generator.proj.bias");
    const logits = y3.rows.map((row, i) =>
      this.tiny.table.map((column, j) =>
        this.make(
          { op: "dot", rows: row, columns: column, plus: bias[j] },
          "logit",
          "logits",
          read.words[i],
          vocabulary[j],
        ),
      ),
    );
    const probabilities = this.softmax(logits, "probability", "probabilities");
    const written = probabilities.map((row) =>
      row.reduce((best, p, j) => (p.value > row[best].value ? j : best), 0),
    );
    return {
      source: inputs,
      encoder,
      encoderNorms: [norm1, norm2],
      encoderNetwork: network,
      memory: norm2.rows,
      target: read,
      masked,
      cross,
      decoderNorms: [y1, y2, y3],
      decoderNetwork: last,
      states: y3.rows,
      logits,
      probabilities,
      written,
    };
  }

  // Sections 3.4 and 3.5.
  private embed(tokens: number[], step: string, after: string): Inputs {
    const { d_model, vocabulary } = this.tiny.model;
    const words = tokens.map((token) => vocabulary[token]);
    const looked = tokens.map((token) => this.tiny.table[token]);
    const root = Math.sqrt(d_model);
    const written = ` · ${Number.isInteger(root) ? root : `√${d_model}`}`;
    const embedded = this.each(looked, "embedding", step, words, (of) => ({
      op: "scale",
      of,
      by: root,
      written,
    }));
    const waves = this.each(looked, "position", after, words, (_, i, j) => wave(i, j, d_model));
    const x = this.changes.leftOut.includes("positions")
      ? embedded
      : this.each(embedded, "x", after, words, (a, i, j) => ({ op: "add", of: [a, waves[i][j]] }));
    return { tokens, words, looked, embedded, waves, x };
  }

  // Section 3.2, equation 1, with h heads side by side.
  private attend(
    name: string,
    from: Read,
    to: Read,
    sees: (i: number, j: number) => boolean,
    steps: Steps,
  ): Attention {
    const { h, d_model } = this.tiny.model;
    const width = d_model / h;
    const heads = Array.from({ length: h }, (_, head) => {
      const cut = (rows: Rows) => rows.map((row) => row.slice(head * width, (head + 1) * width));
      const queries = cut(this.linear(from, `${name}.linears.0`, "query", steps.query, head, width));
      const keys = cut(this.linear(to, `${name}.linears.1`, "key", steps.key, head, width));
      const values = cut(this.linear(to, `${name}.linears.2`, "value", steps.key, head, width));
      const grid = (part: string, step: string, make: (i: number, j: number) => How) =>
        queries.map((_, i) =>
          keys.map((_, j) => this.make(make(i, j), part, step, from.words[i], to.words[j], head)),
        );
      const products = grid("product", steps.product, (i, j) =>
        sees(i, j) ? { op: "dot", rows: queries[i], columns: keys[j] } : { op: "hidden" },
      );
      const scores = this.changes.leftOut.includes("scale")
        ? products
        : grid("score", steps.score, (i, j) =>
            sees(i, j)
              ? { op: "scale", of: products[i][j], by: 1 / Math.sqrt(width), written: ` / √${width}` }
              : { op: "hidden" },
          );
      const weights = this.softmax(scores, "weight", steps.weight);
      const silent = this.changes.leftOut.includes(`${name} ${head}`);
      const output = queries.map((_, i) =>
        Array.from({ length: width }, (_, k) => {
          const column = values.map((row) => row[k]);
          const how: How = silent ? { op: "nothing" } : { op: "dot", rows: weights[i], columns: column };
          return this.make(how, "head", steps.head, from.words[i], `${k + 1}`, head);
        }),
      );
      return { queries, keys, values, products, scores, weights, output };
    });
    const joined = from.words.map((_, i) => heads.flatMap(({ output }) => output[i]));
    const output = this.linear(
      { x: joined, words: from.words },
      `${name}.linears.3`,
      "attention",
      steps.attention,
    );
    const of = <K extends keyof (typeof heads)[0]>(key: K) => heads.map((head) => head[key]);
    return {
      queries: of("queries"),
      keys: of("keys"),
      values: of("values"),
      products: of("products"),
      scores: of("scores"),
      weights: of("weights"),
      heads: of("output"),
      joined,
      output,
    };
  }

  // Section 3.3, equation 2.
  private network(name: string, rows: Rows, words: string[], [step, after]: [string, string]): Network {
    const inner = this.linear({ x: rows, words }, `${name}.w_1`, "inner", step);
    const fired = this.each(inner, "fired", step, words, (of) => ({ op: "relu", of }));
    return { inner, fired, output: this.linear({ x: fired, words }, `${name}.w_2`, "network", after) };
  }

  // LayerNorm(x + sublayer(x)), section 3.1.
  private addAndNorm(
    name: string,
    xs: Rows,
    outputs: Rows,
    words: string[],
    [step, after]: [string, string],
  ): Normed {
    const { eps } = this.tiny.model;
    const [gain, bias] = [this.tiny.vector(`${name}.norm.weight`), this.tiny.vector(`${name}.norm.bias`)];
    const sum = this.each(xs, "sum", step, words, (x, i, j) => ({ op: "add", of: [x, outputs[i][j]] }));
    const mean = sum.map((all, i) => [this.make({ op: "mean", all }, "mean", after, words[i], "")]);
    const deviation = sum.map((all, i) => [
      this.make({ op: "deviation", all, mean: mean[i][0], eps }, "deviation", after, words[i], ""),
    ]);
    const rows = this.each(sum, "normed", after, words, (of, i, j) => ({
      op: "normed",
      of,
      mean: mean[i][0],
      deviation: deviation[i][0],
      gain: gain[j],
      bias: bias[j],
    }));
    return { sum, mean, deviation, rows };
  }

  // The rows times a matrix; of one head, where its columns are `width` of those of all heads.
  private linear(
    { x, words }: Read,
    name: string,
    part: string,
    step: string,
    head?: number,
    width = 0,
  ): Rows {
    const weight = this.tiny.columns(name);
    const bias = this.tiny.vector(`${name}.bias`);
    return x.map((rows, i) =>
      bias.map((plus, j) => {
        const columns = weight.map((row) => row[j]);
        const column = `${(head === undefined ? j : j % width) + 1}`;
        return this.make({ op: "dot", rows, columns, plus }, part, step, words[i], column, head);
      }),
    );
  }

  private softmax(rows: Rows, part: string, step: string): Rows {
    return rows.map((all) =>
      all.map((of) =>
        this.make({ op: "softmax", of, all }, part, step, of.name.row, of.name.column, of.name.head),
      ),
    );
  }

  private each(
    rows: Rows,
    part: string,
    step: string,
    words: string[],
    how: (a: Num, i: number, j: number) => How,
  ): Rows {
    return rows.map((row, i) => row.map((a, j) => this.make(how(a, i, j), part, step, words[i], `${j + 1}`)));
  }

  private make(how: How, part: string, step: string, row: string, column: string, head?: number): Num {
    return new Num(how, { part, step, row, column, ...(head !== undefined && { head }) });
  }
}

interface Read {
  x: Rows;
  words: string[];
}

// The step at which each part of an attention is made.
interface Steps {
  query: string;
  key: string;
  product: string;
  score: string;
  weight: string;
  head: string;
  attention: string;
}

// PE(position, 2i) = sin(position / 10000^(2i / d)), PE(position, 2i + 1) = cos of the same (section 3.5).
function wave(position: number, i: number, d: number): How {
  const slow = 10000 ** ((i - (i % 2)) / d);
  const angle = position / slow;
  const written = `${i % 2 ? "cos" : "sin"}(${position}${slow > 1 ? ` / ${slow.toFixed(0)}` : ""})`;
  return { op: "wave", value: i % 2 ? Math.cos(angle) : Math.sin(angle), written };
}
