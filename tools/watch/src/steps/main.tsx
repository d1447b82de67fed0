// Starts as what it is asked to be: the page, or, in Node, the computation for the tests.

import { render } from "preact";
import base from "../base.css";
import { chosenTheme } from "../theme.ts";
import { App } from "./app.tsx";
import style from "./style.css";
import type { TinyModel } from "./tiny.ts";

export { formulaOf, termsOf } from "./num.ts";
export { Tiny } from "./tiny.ts";

// A notebook's frame grows with the page, and never shrinks: nothing below it moves from step to step.
function fitFrame(): void {
  const frame = window.frameElement as HTMLElement | null;
  if (!frame) return;
  new ResizeObserver(() => {
    const height = Math.max(frame.clientHeight, document.body.offsetHeight);
    frame.style.height = `${height}px`;
  }).observe(document.body);
}

if (typeof document !== "undefined") {
  const place = document.getElementById("steps");
  const data = document.getElementById("model");
  if (place && data) {
    document.head.append(Object.assign(document.createElement("style"), { textContent: base + style }));
    document.documentElement.style.colorScheme = chosenTheme();
    fitFrame();
    const model: TinyModel = JSON.parse(data.textContent);
    const asked = new URLSearchParams(location.search).get("lang") ?? place.dataset.language;
    const linked = location.protocol !== "about:";
    render(<App model={model} language={asked ?? navigator.language.slice(0, 2)} linked={linked} />, place);
  }
}
