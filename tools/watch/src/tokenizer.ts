// Byte-pair encoding (section 5.1), with bytes for what it has never seen. Text becomes numbers, and text again.

export const START = 0;
export const END = 1;

const SYMBOLS = 4; // <s> </s> <blank> <unk>
const SPACE = "\u2581";
const ESCAPE = "\ue000";
const BYTE = /^<0x(..)>$/;
const BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85"; // control characters that Python takes for white space

// Text as the package reads it, see annotated.translation.tokenizers.normalize: one plain space between words, and nothing unseen.
export function normalize(text: string): string {
  const seen = text
    .replace(/\p{Cc}/gu, (control) => (BLANKS.includes(control) ? " " : ""))
    .replace(/[\u200b\u2060\ufeff]/g, " ");
  const words = seen.normalize("NFC").split(/\s+/).filter(Boolean);
  return words.some((word) => /\P{Cf}/u.test(word)) ? words.join(" ") : "";
}

export class Tokenizer {
  readonly pieces: string[];
  private readonly numbers: Map<string, number>;
  private readonly scores: Map<string, number>;

  // Each piece with how early it is merged, the higher the earlier; null for symbols and bytes.
  constructor(pieces: [string, number | null][]) {
    this.pieces = pieces.map(([piece]) => piece);
    this.numbers = new Map(this.pieces.map((piece, i) => [piece, i]));
    this.scores = new Map(pieces.filter((pair): pair is [string, number] => pair[1] !== null));
  }

  encode(text: string): number[] {
    const spaced = SPACE + escaped(text.toWellFormed()).replaceAll(" ", SPACE);
    const words = text ? (spaced.match(/\u2581[^\u2581]*/g) ?? []) : [];
    return words.flatMap((word) => this.merge([...word])).flatMap((piece) => this.numbersOf(piece));
  }

  // The text of tokens; symbols give nothing, and the first space is the one that `encode` put there.
  decode(tokens: number[]): string {
    const bytes = tokens
      .filter((token) => token >= SYMBOLS)
      .flatMap((token, i) => {
        const byte = BYTE.exec(this.pieces[token])?.[1];
        if (byte) return [Number.parseInt(byte, 16)];
        const piece = i ? this.pieces[token] : this.pieces[token].replace(SPACE, "");
        return [...new TextEncoder().encode(piece.replaceAll(SPACE, " "))];
      });
    return unescaped(characters(Uint8Array.from(bytes)));
  }

  // Whether a token spells a byte of a character that no piece holds.
  isByte(token: number): boolean {
    return BYTE.test(this.pieces[token]);
  }

  // The words that are put together from several pieces, as pieces, without punctuation; the bytes that stand side
  // by side as the characters that they spell.
  composed(tokens: number[]): string[][] {
    const words: number[][][] = [];
    tokens.forEach((token, i) => {
      if (token < SYMBOLS) return;
      if (this.pieces[token].startsWith(SPACE) || !words.length) words.push([]);
      const word = words[words.length - 1];
      if (this.isByte(token) && i && this.isByte(tokens[i - 1])) word[word.length - 1].push(token);
      else word.push([token]);
    });
    return words
      .map((word) => word.map((piece) => this.decode(piece)).filter((piece) => /[\p{L}\p{N}]/u.test(piece)))
      .filter((word) => word.length > 1);
  }

  // Join the pair that was learned first, again and again.
  private merge(parts: string[]): string[] {
    for (;;) {
      let best = -1;
      let score = -Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const found = this.scores.get(parts[i] + parts[i + 1]);
        if (found !== undefined && found > score) [best, score] = [i, found];
      }
      if (best < 0) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  }

  private numbersOf(piece: string): number[] {
    const found = this.scores.has(piece) ? this.numbers.get(piece) : undefined;
    if (found !== undefined) return [found];
    const name = (byte: number) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
    return [...new TextEncoder().encode(piece)].map((byte) => this.numbers.get(name(byte)) ?? 3);
  }
}

const escaped = (text: string) => text.replaceAll(ESCAPE, `${ESCAPE}e`).replaceAll(SPACE, `${ESCAPE}m`);
const unescaped = (text: string) =>
  text.replace(/\ue000([em])/g, (_, kind) => (kind === "e" ? ESCAPE : SPACE));

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// UTF-8 as text, with U+FFFD for each byte that belongs to no character, as SentencePiece has it.
function characters(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; ) {
    const size = bytes[i] < 0x80 ? 1 : bytes[i] < 0xe0 ? 2 : bytes[i] < 0xf0 ? 3 : 4;
    try {
      text += strict.decode(bytes.subarray(i, i + size));
      i += size;
    } catch {
      text += "\ufffd";
      i += 1;
    }
  }
  return text;
}
