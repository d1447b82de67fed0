// Light or dark, as chosen on the site's other pages; nothing leaves it to the system.
export function chosenTheme(): string {
  try {
    const mode = localStorage.getItem("mode") ?? "";
    return ["light", "dark"].includes(mode) ? mode : "";
  } catch {
    return ""; // a frame may have no storage
  }
}
