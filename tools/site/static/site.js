// What is wider than its place scrolls by itself; whoever has no mouse must be able to reach it.
function reachable() {
  for (const box of document.querySelectorAll("mjx-container[display], .chart")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
window.addEventListener("load", () => {
  reachable();
  window.MathJax?.startup?.promise?.then(reachable);
});
window.addEventListener("resize", reachable);

// A picture is whole however narrow the page is. A click shows it alone, where a reader can enlarge it.
document.addEventListener("DOMContentLoaded", () => {
  for (const image of document.querySelectorAll(".figure img, .bd-article img[src*='_images/']")) {
    const link = document.createElement("a");
    link.href = image.src;
    image.replaceWith(link);
    link.append(image);
  }
});

// The search reads the pages that it finds, for a summary of each. A browser does not let it read from the disk.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// On paper nothing can be unfolded: solutions are printed open.
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll(".bd-article details:not([open])")];
  for (const details of folded) details.open = true;
});
window.addEventListener("afterprint", () => {
  for (const details of folded) details.open = false;
});
