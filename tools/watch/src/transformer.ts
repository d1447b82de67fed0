// The Transformer of "Attention Is All You Need", as small as it gets. Sections are the paper's.
//
// A sequence is an array of vectors, one a position. Layers have the names that PyTorch gives them, so that what is
// computed here can be compared with it, name by name.

export type Vector = Float32Array;
export type Sequence = Vector[];

// What each layer gave, a row for each position: the layer's name -> rows. Attention adds, below its own name,
// `products`, `scores`, `masked` and `weights`, whose rows hold all heads' keys, head by head.
export type Trace = Record<string, Sequence>;
export const STAGES = ["products", "scores", "masked", "weights"] as const;

// Keys and values of one attention, for all positions that may be looked at.
export type KeysAndValues = [keys: Sequence, values: Sequence];

export interface Weights {
  N: number;
  h: number;
  d_model: number;
  eps: number;
  tensors: Record<string, Vector>;
}

// What may be left out, to see what it is for; "networks" are all feed-forward networks. One network is named as
// PyTorch does it, "encoder.layers.0.feed_forward", a head by its attention and its number,
// "encoder.layers.0.self_attn 2".
export type Part =
  | "positions"
  | "mask"
  | "scale"
  | "residual"
  | "networks"
  | `${string}.feed_forward`
  | `${string} ${number}`;

export class Transformer {
  leftOut: ReadonlySet<Part> = new Set();
  trace: Trace | null = null; // where layers write what they give, if anywhere
  private readonly table: Vector;

  constructor(private readonly weights: Weights) {
    const names = ["src_embed.0.lut.weight", "tgt_embed.0.lut.weight", "generator.proj.weight"];
    this.table = this.tensor(names.find((name) => name in weights.tensors) ?? names[0]);
  }

  // ---- Encoder and decoder (section 3.1)

  // The memory, as the keys and values that each layer of the decoder asks for.
  encode(tokens: number[]): KeysAndValues[] {
    let xs = this.embed(tokens, 0, "src_embed");
    for (let layer = 0; layer < this.weights.N; layer++) {
      const name = `encoder.layers.${layer}`;
      const known = this.keysAndValues(xs, `${name}.self_attn`);
      xs = this.addAndNorm(xs, this.attend(xs, known, `${name}.self_attn`), `${name}.sublayer.0`);
      xs = this.addAndNorm(xs, this.feedForward(xs, `${name}.feed_forward`), `${name}.sublayer.1`);
    }
    return this.emptyCache().map((_, i) => this.keysAndValues(xs, `decoder.layers.${i}.src_attn`));
  }

  // States for `tokens`, the first of which stands at position `start`; and `cache`, the keys and values of the
  // positions before, with those of these tokens.
  decode(
    tokens: number[],
    start: number,
    cache: KeysAndValues[],
    memory: KeysAndValues[],
  ): [Sequence, KeysAndValues[]] {
    let xs = this.embed(tokens, start, "tgt_embed");
    const grown = cache.map(([keys, values], layer): KeysAndValues => {
      const name = `decoder.layers.${layer}`;
      const [newKeys, newValues] = this.keysAndValues(xs, `${name}.self_attn`);
      const known: KeysAndValues = [keys.concat(newKeys), values.concat(newValues)];
      xs = this.addAndNorm(xs, this.attend(xs, known, `${name}.self_attn`, start), `${name}.sublayer.0`);
      xs = this.addAndNorm(xs, this.attend(xs, memory[layer], `${name}.src_attn`), `${name}.sublayer.1`);
      xs = this.addAndNorm(xs, this.feedForward(xs, `${name}.feed_forward`), `${name}.sublayer.2`);
      return known;
    });
    return [xs, grown];
  }

  emptyCache(): KeysAndValues[] {
    return Array.from({ length: this.weights.N }, () => [[], []]);
  }

  // Log-probabilities of the next token, for each state (section 3.4).
  generate(states: Sequence): Sequence {
    return this.record("generator", this.linear(states, "generator.proj").map(logSoftmax));
  }

  // ---- Their parts

  // Section 3.4: a row of the table times sqrt(d_model). Section 3.5: plus the waves of its position.
  private embed(tokens: number[], start: number, name: string): Sequence {
    const d = this.weights.d_model;
    const rows = tokens.map((token) =>
      this.table.slice(token * d, (token + 1) * d).map((x) => x * Math.sqrt(d)),
    );
    this.record(`${name}.0`, rows);
    if (this.leftOut.has("positions")) return this.record(`${name}.1`, rows);
    const waves = this.each(`${name}.1.pe`, rows, (_, i) => sinusoid(start + i, d));
    return this.each(`${name}.1`, rows, (row, i) => row.map((x, j) => x + waves[i][j]));
  }

  private keysAndValues(xs: Sequence, name: string): KeysAndValues {
    return [this.linear(xs, `${name}.linears.1`), this.linear(xs, `${name}.linears.2`)];
  }

  // Section 3.2, equation 1, with h heads side by side. With `start`, the position of the first of `xs`, each
  // position sees itself and what came before it, and no more.
  private attend(xs: Sequence, [keys, values]: KeysAndValues, name: string, start?: number): Sequence {
    const { h, d_model } = this.weights;
    const width = d_model / h; // d_k
    const scale = this.leftOut.has("scale") ? 1 : Math.sqrt(width);
    const causal = start !== undefined && !this.leftOut.has("mask");
    const queries = this.linear(xs, `${name}.linears.0`);
    const rows = queries.map((query, i) => {
      const visible = causal ? start + i + 1 : keys.length;
      const [products, scores, masked, weights] = STAGES.map(() => new Float32Array(h * keys.length));
      const output = new Float32Array(d_model);
      for (let head = 0; head < h; head++) {
        const [from, to] = [head * width, (head + 1) * width];
        const at = (j: number) => head * keys.length + j;
        keys.forEach((key, j) => {
          products[at(j)] = dot(query, from, key, from, to);
          scores[at(j)] = products[at(j)] / scale;
          masked[at(j)] = j < visible ? scores[at(j)] : -Infinity;
        });
        weights.set(softmax(masked.subarray(at(0), at(keys.length))), at(0));
        if (this.leftOut.has(`${name} ${head}`)) continue;
        values.forEach((value, j) => {
          for (let k = from; k < to; k++) output[k] += weights[at(j)] * value[k];
        });
      }
      return { products, scores, masked, weights, output };
    });
    for (const stage of STAGES) this.each(`${name}.${stage}`, rows, (row) => row[stage]);
    const heads = this.each(`${name}.heads`, rows, (row) => row.output);
    return this.linear(heads, `${name}.linears.3`);
  }

  // Section 3.3, equation 2. One that is left out gives zeros.
  private feedForward(xs: Sequence, name: string): Sequence {
    const hidden = this.linear(xs, `${name}.w_1`);
    const fired = this.each(`${name}.fired`, hidden, (row) => row.map((x) => Math.max(0, x)));
    const outputs = this.linear(fired, `${name}.w_2`);
    const leftOut = this.leftOut.has("networks") || this.leftOut.has(`${name as `${string}.feed_forward`}`);
    return leftOut ? this.each(`${name}.w_2`, outputs, (row) => row.map(() => 0)) : outputs;
  }

  // LayerNorm(x + sublayer(x)), section 3.1.
  private addAndNorm(xs: Sequence, outputs: Sequence, name: string): Sequence {
    const [gain, shift] = [this.tensor(`${name}.norm.weight`), this.tensor(`${name}.norm.bias`)];
    const sums = this.leftOut.has("residual")
      ? outputs
      : xs.map((x, i) => x.map((value, j) => value + outputs[i][j]));
    return this.each(`${name}.norm`, this.record(`${name}.sum`, sums), (sum) => {
      const { mean, variance } = moments(sum);
      const deviation = Math.sqrt(variance + this.weights.eps);
      return sum.map((value, j) => ((value - mean) / deviation) * gain[j] + shift[j]);
    });
  }

  private linear(xs: Sequence, name: string): Sequence {
    const weight = this.weights.tensors[`${name}.weight`] ?? this.table;
    const bias = this.tensor(`${name}.bias`);
    const ys = xs.map(() => new Float32Array(bias.length));
    const d = xs[0].length;
    for (let i = 0; i < bias.length; i++) {
      for (let row = 0; row < xs.length; row++) ys[row][i] = bias[i] + dot(weight, i * d, xs[row], 0, d);
    }
    return this.record(name, ys);
  }

  private record(name: string, rows: Sequence): Sequence {
    if (this.trace) this.trace[name] = rows;
    return rows;
  }

  private each<T>(name: string, rows: T[], make: (row: T, i: number) => Vector): Sequence {
    return this.record(name, rows.map(make));
  }

  private tensor(name: string): Vector {
    const found = this.weights.tensors[name];
    if (!found) throw new Error(`the model has no tensor ${name}`);
    return found;
  }
}

// The product of `x`, from one place to another, with as many numbers of `row` from `start` on.
function dot(row: Vector, start: number, x: Vector, from: number, to: number): number {
  let sum = 0;
  for (let i = from; i < to; i++) sum += row[start + i - from] * x[i];
  return sum;
}

// PE(position, 2i) = sin(position / 10000^(2i / d)), PE(position, 2i + 1) = cos of the same (section 3.5).
function sinusoid(position: number, d: number): Vector {
  return new Float32Array(d).map((_, i) => {
    const angle = position * 10000 ** (-(i - (i % 2)) / d);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

export function moments(x: Vector): { mean: number; variance: number } {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  return { mean, variance: x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length };
}

// The cosine of the angle between two vectors; 0 if one of them is zero.
export function similarity(x: Vector, y: Vector): number {
  const product = (a: Vector, b: Vector) => dot(a, 0, b, 0, b.length);
  return product(x, y) / (Math.sqrt(product(x, x) * product(y, y)) || 1);
}

export function softmax(scores: Vector): Vector {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

function logSoftmax(logits: Vector): Vector {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const total = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
  return logits.map((logit) => logit - total);
}
