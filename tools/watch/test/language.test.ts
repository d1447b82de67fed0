// The page's words in each language: none is left in another. That the keys are the same, the compiler sees.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { partNames } from "../src/breaking.tsx";
import { LANGUAGES, speak, texts } from "../src/language.ts";
import { spelled } from "../src/spelling.ts";
import { STOPS } from "../src/stops.tsx";

afterEach(() => speak("en"));

// Each text by its keys; what is drawn (a JSX element) has no keys of its own.
const textsOf = (table: object, within = ""): [string, unknown][] =>
  Object.entries(table).flatMap(([key, value]) =>
    typeof value === "object" && !("props" in value)
      ? textsOf(value, `${within}${key}.`)
      : [[`${within}${key}`, value]],
  );

test("no text of another language is left empty or in English", () => {
  const english = textsOf(LANGUAGES.en);
  for (const code of Object.keys(LANGUAGES).filter((code) => code !== "en")) {
    const own = new Map(textsOf(LANGUAGES[code]));
    for (const [key, text] of english)
      if (typeof text === "string" && /[a-z]{4}/i.test(text))
        assert.ok(own.get(key) && own.get(key) !== text, key);
  }
});

test("every stop and every part has its words, in the language that is spoken", () => {
  for (const code of Object.keys(LANGUAGES)) {
    speak(code);
    for (const stop of STOPS.values()) {
      const { title, question, text } = stop.words();
      assert.ok(title && question && text, stop.id);
    }
  }
  speak("zh");
  assert.equal(spelled("</s>"), "‹结束›");
  assert.equal(
    partNames(["mask", "encoder.layers.0.self_attn 3", "encoder.layers.0.self_attn 0"]),
    "因果掩码、编码器自注意力第 1 层的第 1、4 个头",
  );
});

test("a language that there is not is English", () => {
  for (const code of ["xx", "constructor", ""]) {
    speak(code);
    assert.equal(texts.code, "en");
  }
});
