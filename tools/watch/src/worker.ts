// The model at work beside the page, so that the page never waits for it.

import { type Look, type PageModel, type Request, Translator } from "./translator.ts";

declare const annotatedPage: () => unknown; // the function in which the whole script stands, see build.mjs

export type Ask = (request: Request) => Promise<Look>;

export interface Running {
  ask: Ask;
  end: () => void;
}

type Answer = { look: Look } | { error: string };

// A way to ask the model: in a worker made from this script's own text, because none may be loaded from a
// disk; in the page itself, where workers are forbidden.
export function startModel(model: PageModel): Running {
  let worker: Worker;
  try {
    const text = new Blob([`(${annotatedPage})()`], { type: "text/javascript" });
    worker = new Worker(URL.createObjectURL(text));
  } catch {
    const translator = new Translator(model);
    return { ask: async (request) => translator.look(request), end: () => {} };
  }
  const waiting: ((answer: Answer) => void)[] = []; // one for each request; answers come in their order
  worker.onmessage = ({ data }: MessageEvent<Answer>) => waiting.shift()?.(data);
  worker.postMessage(model);
  const ask: Ask = (request) =>
    new Promise((resolve, reject) => {
      waiting.push((answer) => ("look" in answer ? resolve(answer.look) : reject(new Error(answer.error))));
      worker.postMessage(request);
    });
  return { ask, end: () => worker.terminate() };
}

// What the worker does: the first message is the model, each further one a request.
export function serve(): void {
  let translator: Translator;
  self.onmessage = ({ data }: MessageEvent<PageModel | Request>) => {
    if (!("sentence" in data)) {
      translator = new Translator(data);
      return;
    }
    try {
      self.postMessage({ look: translator.look(data) });
    } catch (error) {
      self.postMessage({ error: String(error) });
    }
  };
}
