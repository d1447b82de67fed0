// The Transformer of "Attention Is All You Need", as small as it gets: text in, text out, no library.
//
// A vector is a Float32Array of d_model numbers, a sequence an array of vectors. Sections are the paper's.
"use strict";

class PageTranslator {
  // `model` is what model.js holds: settings, pieces with their scores, the weights as 16-bit floats in base64.
  constructor(model) {
    Object.assign(this, { N: model.N, h: model.h, d: model.d_model, eps: model.eps });
    this.pieces = model.pieces.map(([piece]) => piece);
    this.numbers = new Map(this.pieces.map((piece, i) => [piece, i]));
    this.scores = new Map(model.pieces.filter(([, score]) => score !== null));
    this.forbidden = model.forbidden;
    const bytes = Uint8Array.from(atob(model.weights), (c) => c.charCodeAt(0));
    const all = halves(new Uint16Array(bytes.buffer));
    let start = 0;
    this.tensors = {};
    for (const [name, shape] of Object.entries(model.tensors)) {
      const size = shape.reduce((a, b) => a * b, 1);
      this.tensors[name] = all.subarray(start, (start += size));
    }
    const names = Object.keys(model.tensors);
    this.table = this.tensors[names.find((name) => name.endsWith("lut.weight") || name === "generator.proj.weight")];
  }

  // The translation of one sentence, the tokens read and written, and where each head of each layer looked while
  // it wrote: looks[written][layer][head][read]. Beam search and length penalty as in section 6.1.
  translate(sentence, beam = 4, alpha = 0.6) {
    if (!sentence.trim()) return { translation: "", read: [], written: [], looks: [] };
    const source = [...this.encode(sentence), END];
    const [best] = this.search(source, beam, alpha);
    const written = [...best.tokens, END];
    return {
      translation: this.decode(best.tokens),
      read: source.map((token) => this.pieces[token]),
      written: written.map((token) => this.pieces[token]),
      looks: best.looks,
    };
  }

  // ---- The model (section 3)

  linear(x, name) {
    const weight = this.tensors[`${name}.weight`] ?? this.table;
    const bias = this.tensors[`${name}.bias`];
    const y = new Float32Array(bias.length);
    for (let i = 0, at = 0; i < y.length; i++) {
      let sum = bias[i];
      for (let j = 0; j < x.length; j++) sum += weight[at++] * x[j];
      y[i] = sum;
    }
    return y;
  }

  // LayerNorm(x + sublayer), section 3.1.
  addAndNorm(x, sublayer, name) {
    const [gain, shift] = [this.tensors[`${name}.weight`], this.tensors[`${name}.bias`]];
    const sum = x.map((value, i) => value + sublayer[i]);
    const mean = sum.reduce((a, b) => a + b, 0) / sum.length;
    const variance = sum.reduce((a, b) => a + (b - mean) ** 2, 0) / sum.length;
    return sum.map((value, i) => ((value - mean) / Math.sqrt(variance + this.eps)) * gain[i] + shift[i]);
  }

  // All heads for one query, equation 1: returns W^O of the heads' outputs, and each head's weights.
  attend(x, keys, values, name) {
    const query = this.linear(x, `${name}.linears.0`);
    const width = this.d / this.h; // d_k
    const output = new Float32Array(this.d);
    const looks = [];
    for (let from = 0; from < this.d; from += width) {
      const scores = keys.map((key) => {
        let sum = 0;
        for (let i = from; i < from + width; i++) sum += query[i] * key[i];
        return sum / Math.sqrt(width);
      });
      const weights = softmax(scores);
      values.forEach((value, j) => {
        for (let i = from; i < from + width; i++) output[i] += weights[j] * value[i];
      });
      looks.push(weights);
    }
    return [this.linear(output, `${name}.linears.3`), looks];
  }

  // Section 3.3, equation 2.
  feedForward(x, name) {
    return this.linear(this.linear(x, `${name}.w_1`).map((value) => Math.max(0, value)), `${name}.w_2`);
  }

  // Sections 3.4 and 3.5: a row of the table times sqrt(d_model), and the waves of its position.
  embed(token, position) {
    return new Float32Array(this.d).map((_, i) => {
      const angle = position * 10000 ** (-(i - (i % 2)) / this.d);
      return this.table[token * this.d + i] * Math.sqrt(this.d) + (i % 2 ? Math.cos(angle) : Math.sin(angle));
    });
  }

  keysAndValues(xs, name) {
    return [1, 2].map((i) => xs.map((x) => this.linear(x, `${name}.linears.${i}`)));
  }

  // The memory, as the keys and values that each layer of the decoder will ask for.
  encodeSource(tokens) {
    let xs = tokens.map((token, position) => this.embed(token, position));
    for (let layer = 0; layer < this.N; layer++) {
      const name = `encoder.layers.${layer}`;
      const [keys, values] = this.keysAndValues(xs, `${name}.self_attn`);
      xs = xs.map((x) => {
        const [seen] = this.attend(x, keys, values, `${name}.self_attn`);
        const y = this.addAndNorm(x, seen, `${name}.sublayer.0.norm`);
        return this.addAndNorm(y, this.feedForward(y, `${name}.feed_forward`), `${name}.sublayer.1.norm`);
      });
    }
    return Array.from({ length: this.N }, (_, i) => this.keysAndValues(xs, `decoder.layers.${i}.src_attn`));
  }

  // One step of the decoder: log-probabilities of what follows `token`, the cache with it, where it looked.
  decodeStep(token, position, cache, memory) {
    let x = this.embed(token, position);
    const looks = [];
    const grown = cache.map(([keys, values], layer) => {
      const name = `decoder.layers.${layer}`;
      const [[key], [value]] = this.keysAndValues([x], `${name}.self_attn`);
      const both = [[...keys, key], [...values, value]];
      x = this.addAndNorm(x, this.attend(x, ...both, `${name}.self_attn`)[0], `${name}.sublayer.0.norm`);
      const [seen, weights] = this.attend(x, ...memory[layer], `${name}.src_attn`);
      looks.push(weights);
      x = this.addAndNorm(x, seen, `${name}.sublayer.1.norm`);
      x = this.addAndNorm(x, this.feedForward(x, `${name}.feed_forward`), `${name}.sublayer.2.norm`);
      return both;
    });
    const logits = this.linear(x, "generator.proj");
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    const total = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    for (const symbol of this.forbidden) logits[symbol] = -Infinity;
    return { logProbs: logits.map((logit) => logit - total), cache: grown, looks };
  }

  // ---- The search (section 6.1)

  // Hypotheses that have ended, the best first; as annotated.decoding.beam_search.
  search(source, beam, alpha) {
    const memory = this.encodeSource(source);
    const limit = source.length + 50;
    const penalty = (length) => ((5 + length) / 6) ** alpha;
    const ended = [];
    let open = [{ tokens: [], last: START, logProb: 0, cache: Array(this.N).fill([[], []]), looks: [] }];
    for (let length = 0; length < limit && ended.length < beam && open.length; length++) {
      const steps = open.map((one) => this.decodeStep(one.last, length, one.cache, memory));
      const candidates = likeliest(open, steps, 2 * beam, length + 1 >= limit);
      const grown = candidates.map(({ row, token, logProb }) => ({
        tokens: token === END ? open[row].tokens : [...open[row].tokens, token],
        last: token,
        logProb,
        cache: steps[row].cache,
        looks: [...open[row].looks, steps[row].looks],
      }));
      for (const one of grown.slice(0, beam).filter((one) => one.last === END)) {
        ended.push({ ...one, score: one.logProb / penalty(one.tokens.length + 1) });
      }
      open = grown.filter((one) => one.last !== END).slice(0, beam);
      ended.sort((a, b) => b.score - a.score);
      if (open.length && ended.length && ended[0].score >= open[0].logProb / penalty(limit)) break;
    }
    return ended;
  }

  // ---- The tokenizer: byte-pair encoding (section 5.1), bytes for what it has never seen

  encode(text) {
    const spaced = SPACE + escaped(text).replaceAll(" ", SPACE);
    const words = text ? spaced.match(/\u2581[^\u2581]*/g) : [];
    return words.flatMap((word) => this.merge([...word])).flatMap((piece) => this.numbersOf(piece));
  }

  // Join the pair that was learned first, again and again.
  merge(parts) {
    for (;;) {
      let best = -1, score = -Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const found = this.scores.get(parts[i] + parts[i + 1]);
        if (found !== undefined && found > score) [best, score] = [i, found];
      }
      if (best < 0) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  }

  numbersOf(piece) {
    if (this.scores.has(piece)) return [this.numbers.get(piece)];
    const name = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
    return [...new TextEncoder().encode(piece)].map((byte) => this.numbers.get(name(byte)));
  }

  decode(tokens) {
    const bytes = tokens.flatMap((token) => {
      const byte = /^<0x(..)>$/.exec(this.pieces[token]);
      return byte ? [parseInt(byte[1], 16)] : [...new TextEncoder().encode(this.pieces[token])];
    });
    const text = new TextDecoder().decode(Uint8Array.from(bytes)).replaceAll(SPACE, " ");
    return unescaped(text.replace(/^ /, ""));
  }
}

const START = 0, END = 1, SPACE = "\u2581", ESCAPE = "\ue000";
const escaped = (text) => text.replaceAll(ESCAPE, `${ESCAPE}e`).replaceAll(SPACE, `${ESCAPE}m`);
const unescaped = (text) => text.replace(/\ue000([em])/g, (_, kind) => (kind === "e" ? ESCAPE : SPACE));

function softmax(scores) {
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

// The `count` best continuations of all open hypotheses, the best first; at the limit only ends.
function likeliest(open, steps, count, onlyEnd) {
  const best = [];
  steps.forEach(({ logProbs }, row) => {
    const tokens = onlyEnd ? [END] : logProbs.keys();
    for (const token of tokens) {
      const logProb = open[row].logProb + logProbs[token];
      if (best.length === count && logProb <= best[count - 1].logProb || logProb === -Infinity) continue;
      const at = best.findIndex((other) => other.logProb < logProb);
      best.splice(at < 0 ? best.length : at, 0, { row, token, logProb });
      if (best.length > count) best.pop();
    }
  });
  return best;
}

// 16-bit floats as 32-bit ones: sign, five bits of exponent, ten of fraction.
function halves(bits) {
  return Float32Array.from(bits, (half) => {
    const [exponent, fraction] = [(half >> 10) & 31, half & 1023];
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    return half & 0x8000 ? -size : size;
  });
}

if (typeof module !== "undefined") module.exports = { PageTranslator };
