// Starts as what it is asked to be: the page, or, in Node, the computation for the tests.

import { render } from "preact";
import base from "../base.css";
import { chosenTheme } from "../theme.ts";
import { App } from "./app.tsx";
import { Learning } from "./learning.tsx";
import style from "./style.css";
import { type Recorded, Training } from "./training.ts";

export { formulaOf, termsOf } from "./num.ts";
export { Tiny } from "./tiny.ts";
export { Training } from "./training.ts";

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
  const place = document.getElementById("steps") ?? document.getElementById("learning");
  const data = document.getElementById("model");
  if (place && data) {
    document.head.append(Object.assign(document.createElement("style"), { textContent: base + style }));
    document.documentElement.style.colorScheme = chosenTheme();
    fitFrame();
    const model = JSON.parse(data.textContent);
    const asked = new URLSearchParams(location.search).get("lang") ?? place.dataset.language;
    const language = asked ?? navigator.language.slice(0, 2);
    if (place.id === "steps")
      render(<App model={model} language={language} linked={location.protocol !== "about:"} />, place);
    else
      Training.unpack(model as Recorded).then((training) =>
        render(<Learning training={training} language={language} />, place),
      );
  }
}
