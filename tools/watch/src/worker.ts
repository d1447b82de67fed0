// The model at work beside the page, so that the page never waits for it.

import { type Look, type PageModel, type Request, Translator } from "./translator.ts";

declare const annotatedWatch: () => unknown; // the function in which the whole script stands, see build.mjs

export type Ask = (request: Request) => Promise<Look>;

export interface Running {
  ask: Ask;
  end: () => void;
}

type Answer = { number: number } & ({ look: Look } | { error: string });

// A way to ask the model: in a worker made from this script's own text, because none may be loaded from a
// disk; in the page itself, where workers are forbidden.
export function startModel(model: PageModel): Running {
  let worker: Worker;
  try {
    const text = new Blob([`(${annotatedWatch})()`], { type: "text/javascript" });
    worker = new Worker(URL.createObjectURL(text));
  } catch {
    const translator = new Translator(model);
    return { ask: async (request) => translator.look(request), end: () => {} };
  }
  const waiting = new Map<number, (answer: Answer) => void>();
  let count = 0;
  worker.onmessage = ({ data }: MessageEvent<Answer>) => {
    waiting.get(data.number)?.(data);
    waiting.delete(data.number);
  };
  worker.postMessage(model);
  const ask: Ask = (request) =>
    new Promise((resolve, reject) => {
      waiting.set(++count, (answer) =>
        "look" in answer ? resolve(answer.look) : reject(new Error(answer.error)),
      );
      worker.postMessage({ number: count, request });
    });
  return { ask, end: () => worker.terminate() };
}

// What the worker does: the first message is the model, each further one a request.
export function serve(): void {
  let translator: Translator;
  self.onmessage = ({ data }: MessageEvent<PageModel | { number: number; request: Request }>) => {
    if (!("request" in data)) {
      translator = new Translator(data);
      return;
    }
    try {
      self.postMessage({ number: data.number, look: translator.look(data.request) });
    } catch (error) {
      self.postMessage({ number: data.number, error: String(error) });
    }
  };
}
