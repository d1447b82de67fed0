// The language of the page's own words. The model's sentences stay what they are.

import { en } from "./en.tsx";
import { zh } from "./zh.tsx";

export type Texts = typeof en;
export const LANGUAGES: Record<string, Texts> = { en, zh }; // by their codes, as `lang` has them

export let texts = en;
export function speak(language: string): void {
  texts = Object.hasOwn(LANGUAGES, language) ? LANGUAGES[language] : en;
}
