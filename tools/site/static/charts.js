// Draws each chart of the page, live, in the place of its still. Where that fails, the still stays.
document.addEventListener("DOMContentLoaded", () => {
  // On a phone a legend beside a chart would stand outside of its frame.
  const config = innerWidth < 600 ? { legend: { orient: "bottom" } } : {};
  for (const chart of document.querySelectorAll(".chart")) {
    const spec = JSON.parse(chart.querySelector("script").textContent);
    const live = document.createElement("div");
    vegaEmbed(live, spec, { actions: false, renderer: "svg", logLevel: 1, config }).then(() => {
      chart.querySelector(".drawing").replaceChildren(live);
      // On a phone a chart shrinks until its letters would be too small; from there on it scrolls in its frame.
      const svg = live.querySelector("svg");
      svg.style.minWidth = `${svg.width.baseVal.value / 2}px`;
      chart.classList.add("live");
    }, console.error);
  }
});
