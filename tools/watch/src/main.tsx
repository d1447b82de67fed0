// Starts as what it is asked to be: a page, the page's worker, or, in Node, the translator for the tests.

import { render } from "preact";
import { App } from "./app.tsx";
import base from "./base.css";
import { texts } from "./language.ts";
import style from "./style.css";
import { chosenTheme } from "./theme.ts";
import type { PageModel } from "./translator.ts";
import { serve } from "./worker.ts";

export { readFolder } from "./folder.ts";
export { normalize } from "./tokenizer.ts";
export { Translator } from "./translator.ts";

declare global {
  interface Window {
    model?: PageModel;
  }
}

// The model may stand in the page already, or in a script that is fetched now.
function loadModel(address?: string): Promise<PageModel> {
  return new Promise((resolve, reject) => {
    const found = () => (window.model ? resolve(window.model) : reject(new Error(texts.noModel)));
    if (window.model || !address) return found();
    const script = Object.assign(document.createElement("script"), { src: address, async: true });
    script.onload = found;
    script.onerror = () => reject(new Error(texts.noScript(address)));
    document.head.append(script);
  });
}

if (typeof document !== "undefined") {
  const place = document.getElementById("watch");
  if (place) {
    const { model, series, sentence, examples, tries, sure } = place.dataset;
    document.documentElement.style.colorScheme = chosenTheme();
    document.head.append(Object.assign(document.createElement("style"), { textContent: base + style }));
    const setting = {
      loadModel: () => loadModel(model),
      series,
      sure: sure ? JSON.parse(sure) : undefined,
      sentence,
      examples: JSON.parse(examples ?? "[]"),
      tries: JSON.parse(tries ?? "{}"),
      linked: location.protocol !== "about:",
    };
    render(<App setting={setting} />, place);
  }
} else if (typeof importScripts !== "undefined") serve();
