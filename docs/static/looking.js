// Shows where the decoder looked while it wrote each token of a translation: choose a sentence, then point at a
// token or go from one to the next with the Tab key. The page holds the attention of every layer and head. Or type
// a sentence: then the model itself is loaded (model.js) and runs here (translator.js).
document.addEventListener("DOMContentLoaded", () => {
  const sentences = JSON.parse(document.getElementById("looks").textContent);
  const panel = document.querySelector(".looking");
  const state = { sentence: 0, layer: sentences[0].maps.length - 1, head: -1, token: 1 };

  const make = (tag, className, text = "") =>
    Object.assign(document.createElement(tag), { className, textContent: text });
  const spelled = (token) => token.replace(/^\u2581/, "") || "\u2423";

  // The weights over the tokens read, in percent; head -1 is the mean of all heads.
  function weights() {
    const heads = sentences[state.sentence].maps[state.layer];
    const chosen = state.head < 0 ? heads : [heads[state.head]];
    const rows = chosen.map((head) => head[state.token]);
    return rows[0].map((_, key) => rows.reduce((sum, row) => sum + row[key], 0) / rows.length);
  }

  function menu(name, labels, first) {
    const label = make("label", "", `${name} `);
    const select = make("select", "");
    labels.forEach((text, i) => select.add(new Option(text, i + first)));
    select.value = state[name];
    select.addEventListener("change", () => { state[name] = Number(select.value); shade(); });
    label.append(select);
    return label;
  }

  function draw() {
    const { read, written, maps } = sentences[state.sentence];
    const menus = make("p", "menus");
    const numbers = (list) => list.map((_, i) => `${i + 1}`);
    menus.append(menu("layer", numbers(maps), 0), menu("head", ["mean of all", ...numbers(maps[0])], -1));
    const above = make("div", "read");
    for (const token of read) {
      const column = make("span", "column");
      column.append(make("span", "bar"), make("span", "token", spelled(token)));
      above.append(column);
    }
    const below = make("div", "written");
    below.lang = "de";
    written.forEach((token, i) => {
      const button = make("button", "token", spelled(token));
      button.type = "button";
      for (const event of ["pointerenter", "focus", "click"]) {
        button.addEventListener(event, () => { state.token = i; shade(); });
      }
      below.append(button);
    });
    const said = make("p", "said");
    said.setAttribute("aria-live", "polite");
    panel.replaceChildren(menus, above, below, said);
    shade();
  }

  function shade() {
    const { read, written } = sentences[state.sentence];
    const percent = weights();
    panel.querySelectorAll(".bar").forEach((bar, i) => bar.style.setProperty("--weight", percent[i] / 100));
    panel.querySelectorAll(".written button").forEach((button, i) =>
      button.setAttribute("aria-pressed", i === state.token));
    const order = percent.map((_, i) => i).sort((a, b) => percent[b] - percent[a]).slice(0, 2);
    const seen = order.map((i) => `${spelled(read[i])} (${Math.round(percent[i])}%)`).join(" and ");
    panel.querySelector(".said").textContent = `Writing ${spelled(written[state.token])}, it looks most at ${seen}.`;
  }

  document.querySelectorAll("button[data-sentence]").forEach((button, i) => {
    button.disabled = false;
    button.addEventListener("click", () => {
      Object.assign(state, { sentence: i, token: Math.min(1, sentences[i].written.length - 1) });
      document.querySelectorAll("button[data-sentence]").forEach((other) =>
        other.setAttribute("aria-pressed", other === button));
      draw();
    });
    button.setAttribute("aria-pressed", i === 0);
  });

  // ---- A sentence of one's own

  const form = document.querySelector(".own");
  const status = form.querySelector("output");
  let translator = null;

  const load = (name) => new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: form.dataset.from + name });
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });

  async function translateOwn(sentence) {
    if (!translator) {
      status.textContent = "Loading the model, 6 MB ...";
      await Promise.all([load("translator.js"), load("model.js")]);
      translator = new PageTranslator(window.model);
      delete window.model;
    }
    status.textContent = "Translating ...";
    await new Promise((resolve) => setTimeout(resolve, 20)); // let the browser show that
    const { translation, read, written, looks } = translator.translate(sentence);
    status.textContent = translation;
    const percent = (weights) => weights.map((weight) => 100 * weight);
    const maps = looks[0].map((heads, layer) =>
      heads.map((_, head) => looks.map((step) => percent(step[layer][head]))));
    sentences.push({ read, written, maps });
    Object.assign(state, { sentence: sentences.length - 1, token: 0 });
    document.querySelectorAll("button[data-sentence]").forEach((b) => b.setAttribute("aria-pressed", false));
    draw();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const sentence = form.querySelector("input").value.trim();
    if (sentence) translateOwn(sentence).catch(() => { status.textContent = "The model could not be loaded."; });
  });
  form.hidden = false;
  panel.hidden = false;
  draw();
});
