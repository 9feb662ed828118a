"use strict";
(() => {
  const heading = document.getElementById("all-claims-every-claim");
  let scroll = heading;
  while (scroll && !scroll.matches(".scroll")) scroll = scroll.nextElementSibling;
  if (!scroll) return;
  const rows = [...scroll.querySelectorAll("tbody tr")];
  const form = document.createElement("form");
  const shown = document.createElement("p");
  form.setAttribute("role", "search");
  form.setAttribute("aria-label", "Filter the claims");
  shown.setAttribute("role", "status");
  scroll.before(form, shown);

  const field = (title, control) => {
    const label = form.appendChild(document.createElement("label"));
    label.append(title, control);
    return control;
  };
  const search = field("search", document.createElement("input"));
  search.type = "search";
  const filters = [...scroll.querySelectorAll("th")].slice(1).map((header, index) => {
    const select = field(header.textContent, document.createElement("select"));
    const counts = new Map();
    const value = (row) => row.cells[index + 1].textContent;
    for (const row of rows) counts.set(value(row), (counts.get(value(row)) ?? 0) + 1);
    select.add(new Option("all", ""));
    for (const each of [...counts.keys()].sort()) select.add(new Option(`${each} (${counts.get(each)})`, each));
    return (row) => !select.value || value(row) === select.value;
  });

  const update = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !(words.every((word) => text.includes(word)) && filters.every((holds) => holds(row)));
    }
    shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
  };
  form.append(Object.assign(document.createElement("button"), { type: "reset", textContent: "Clear filters" }));
  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update));
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
