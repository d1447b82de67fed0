// Numbers that know where they come from: each is made from others in one of a few ways, and can say how.

export type How =
  | { op: "given"; value: number } // a weight
  | { op: "wave"; value: number; written: string } // by the formula of the positions
  | { op: "hidden" } // by the mask
  | { op: "nothing" } // of a head that was taken away
  | { op: "dot"; rows: Num[]; columns: Num[]; plus?: Num }
  | { op: "add"; of: Num[] }
  | { op: "scale"; of: Num; by: number; written: string }
  | { op: "softmax"; of: Num; all: Num[] }
  | { op: "relu"; of: Num }
  | { op: "mean"; all: Num[] }
  | { op: "deviation"; all: Num[]; mean: Num; eps: number }
  | { op: "normed"; of: Num; mean: Num; deviation: Num; gain: Num; bias: Num };

// What a number is called: "the query of cat, 1 of 2"; a weight of a matrix has the matrix's row.
export interface Name {
  part: string; // see `parts` in en.tsx
  step: string; // where it is made
  row: string;
  column: string;
  head?: number;
}

export class Num {
  readonly value: number;
  constructor(
    readonly how: How,
    readonly name: Name,
  ) {
    this.value = compute(how);
  }
  toJSON() {
    return this.value;
  }
}

function compute(how: How): number {
  switch (how.op) {
    case "given":
    case "wave":
      return how.value;
    case "hidden":
      return -Infinity;
    case "nothing":
      return 0;
    case "dot":
      return how.rows.reduce((sum, a, i) => sum + a.value * how.columns[i].value, how.plus?.value ?? 0);
    case "add":
      return how.of.reduce((sum, a) => sum + a.value, 0);
    case "scale":
      return how.of.value * how.by;
    case "softmax": // a row with nothing to see gives zeros
      if (how.of.value === -Infinity) return 0;
      return Math.exp(how.of.value) / how.all.reduce((sum, a) => sum + Math.exp(a.value), 0);
    case "relu":
      return Math.max(0, how.of.value);
    case "mean":
      return how.all.reduce((sum, a) => sum + a.value, 0) / how.all.length;
    case "deviation": {
      const squares = how.all.reduce((sum, a) => sum + (a.value - how.mean.value) ** 2, 0);
      return Math.sqrt(squares / how.all.length + how.eps);
    }
    case "normed":
      return ((how.of.value - how.mean.value) / how.deviation.value) * how.gain.value + how.bias.value;
  }
}

// The numbers that it is made from.
export function termsOf({ how }: Num): Num[] {
  switch (how.op) {
    case "dot":
      return [...how.rows, ...how.columns, ...(how.plus ? [how.plus] : [])];
    case "add":
      return how.of;
    case "scale":
    case "relu":
      return [how.of];
    case "softmax":
    case "mean":
      return how.all;
    case "deviation":
      return [...how.all, how.mean];
    case "normed":
      return [how.of, how.mean, how.deviation, how.gain, how.bias];
    default:
      return [];
  }
}

// All numbers on the ways back from some.
export function reached(from: Num[]): Set<Num> {
  const all = new Set<Num>();
  const visit = (num: Num) => {
    if (all.has(num)) return;
    all.add(num);
    termsOf(num).forEach(visit);
  };
  from.forEach(visit);
  return all;
}

// How it is computed, written out: numbers with signs between them. Empty for one that is not computed.
export function formulaOf({ how }: Num): (Num | string)[] {
  const joined = (parts: (Num | string)[][], sign: string) =>
    parts.flatMap((part, i) => (i ? [sign, ...part] : part));
  switch (how.op) {
    case "dot": {
      const products = how.rows.map((a, i) => [a, " · ", how.columns[i]]);
      return joined(how.plus?.value ? [...products, [how.plus]] : products, " + ");
    }
    case "add":
      return joined(
        how.of.map((a) => [a]),
        " + ",
      );
    case "scale":
      return [how.of, how.written];
    case "softmax": {
      const seen = how.all.filter((a) => a.value > -Infinity);
      if (!seen.includes(how.of)) return [];
      const powers = joined(
        seen.map((a) => ["exp(", a, ")"]),
        " + ",
      );
      return ["exp(", how.of, ") / (", ...powers, ")"];
    }
    case "relu":
      return ["max(0, ", how.of, ")"];
    case "mean":
      return [
        "(",
        ...joined(
          how.all.map((a) => [a]),
          " + ",
        ),
        `) / ${how.all.length}`,
      ];
    case "deviation":
      return [
        "√((",
        ...joined(
          how.all.map((a) => ["(", a, " − ", how.mean, ")²"]),
          " + ",
        ),
        `) / ${how.all.length})`,
      ];
    case "normed": {
      const centered = ["(", how.of, " − ", how.mean, ") / ", how.deviation];
      const scaled = how.gain.value === 1 ? centered : [...centered, " · ", how.gain];
      return how.bias.value ? [...scaled, " + ", how.bias] : scaled;
    }
    default:
      return how.op === "wave" ? [how.written] : [];
  }
}
