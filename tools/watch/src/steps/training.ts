// The training of a tiny model: the model after each update, and what is known of all of them at once.

import type { TinyModel } from "./tiny.ts";

export interface Recorded extends TinyModel {
  targets: string[][]; // what is to be written for each sentence
  decimals: number; // of the weights
  steps: string; // what each update adds to each weight, in units of the last decimal: deflated, in base64
  losses: number[]; // after each number of updates, as all that follow: the mean over all tokens
  firsts: string[]; // the words that begin a target,
  chances: number[][][]; // and how likely they are to be the first, for each sentence
  right: boolean[][]; // of each sentence
}

export class Training {
  private constructor(
    readonly recorded: Recorded,
    private readonly weights: Float64Array[], // of each tensor's numbers, in their order: after each update
  ) {}

  static async unpack(recorded: Recorded): Promise<Training> {
    const bytes = Uint8Array.from(atob(recorded.steps), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const steps = new Int16Array(await new Response(stream).arrayBuffer());
    const [unit, many] = [10 ** recorded.decimals, recorded.losses.length];
    const first = Object.values(recorded.tensors).flat(2);
    const weights = first.map((weight, i) => {
      let units = Math.round(weight * unit);
      return Float64Array.from({ length: many }, (_, update) => {
        if (update > 0) units += steps[i * (many - 1) + update - 1];
        return units / unit;
      });
    });
    return new Training(recorded, weights);
  }

  get updates(): number {
    return this.recorded.losses.length - 1;
  }

  after(update: number): TinyModel {
    let i = 0;
    const tensors = Object.entries(this.recorded.tensors).map(([name, rows]) => [
      name,
      rows.map((row) => row.map(() => this.weights[i++][update])),
    ]);
    return { ...this.recorded, tensors: Object.fromEntries(tensors) };
  }

  // How likely a word is to be the first of a sentence, after each update.
  chancesOf(sentence: number, word: string): number[] {
    const at = this.recorded.firsts.indexOf(word);
    return this.recorded.chances.map((chances) => chances[sentence][at]);
  }

  // The other words that begin the targets of sentences with the same first word.
  rivalsOf(sentence: number): string[] {
    const { sentences, targets } = this.recorded;
    const own = targets[sentence][0];
    const alike = targets.filter((_, i) => sentences[i][0] === sentences[sentence][0]);
    return [...new Set(alike.map(([word]) => word))].filter((word) => word !== own);
  }

  // From which update on a sentence's first word is likelier than its rivals, the sentence is right, and all are: each
  // to the end of the training, so none where the end has it otherwise.
  momentsOf(sentence: number): Record<"ahead" | "right" | "all", number | null> {
    const { targets, right } = this.recorded;
    const own = this.chancesOf(sentence, targets[sentence][0]);
    const others = this.rivalsOf(sentence).map((word) => this.chancesOf(sentence, word));
    return {
      ahead: forGood(own.map((chance, update) => others.every((other) => chance > other[update]))),
      right: forGood(right.map((each) => each[sentence])),
      all: forGood(right.map((each) => each.every(Boolean))),
    };
  }
}

function forGood(holds: boolean[]): number | null {
  const from = holds.lastIndexOf(false) + 1;
  return from < holds.length ? from : null;
}
