// Numbers and pieces, written as a reader expects them.

import type { ComponentChildren } from "preact";
import { texts } from "./language.ts";

// A piece as a reader knows it. A word begins with a space and a punctuation mark does not: what is otherwise is marked,
// a part of a word that is joined to the one before by a dot. Symbols are named, and a byte that is a character by itself
// is that character.
export function spelled(piece: string): string {
  if (piece === "<s>" || piece === "</s>") return piece === "<s>" ? texts.start : texts.end;
  const byte = Number.parseInt(/^<0x(..)>$/.exec(piece)?.[1] ?? "", 16);
  const text = byte > 0x20 && byte < 0x7f ? String.fromCharCode(byte) : piece.replace(/^\u2581/, "");
  const word = /^[\p{L}\p{N}]/u.test(text);
  if (piece.startsWith("\u2581")) return word ? text : `␣${text}`;
  return word ? `·${text}` : text;
}

// Whether a dot stands in such names.
export const joined = (names: string[]) => names.some((name) => name.startsWith("·"));

// Names of which no two are alike: those that were get a small number, that of their position if no others are given.
export const distinct = (names: string[], numbers: number[] = names.map((_, i) => i)) =>
  names.map((name, i) =>
    names.indexOf(name) === names.lastIndexOf(name)
      ? name
      : name + String(numbers[i]).replace(/\d/g, (digit) => String.fromCharCode(0x2080 + Number(digit))),
  );

// Elements with commas, or what else is given, between them.
export const listed = (parts: ComponentChildren[], between = texts.comma) =>
  parts.map((part, i) => [i > 0 && between, part]);
