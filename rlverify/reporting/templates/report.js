"use strict";
(() => {
  const reveal = () => {
    const place = document.getElementById(location.hash.slice(1));
    for (let each = place; each; each = each.parentElement) if (each.matches("details")) each.open = true;
    const inside = place?.querySelector(":scope > details");
    if (inside) inside.open = true;
    place?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  const heading = document.getElementById("all-claims-every-claim");
  let scroll = heading;
  while (scroll && !scroll.matches(".scroll")) scroll = scroll.nextElementSibling;
  if (!scroll) return;
  const rows = [...scroll.querySelectorAll("tbody tr")];
  const full = (row) => document.getElementById(`full-${row.querySelector("a").hash.slice(1)}`)?.closest("details");
  const texts = new Map(rows.map((row) => [row, (row.textContent + (full(row)?.textContent ?? "")).toLowerCase()]));
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
      row.hidden = !(words.every((word) => texts.get(row).includes(word)) && filters.every((holds) => holds(row)));
    }
    shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
  };
  form.append(Object.assign(document.createElement("button"), { type: "reset", textContent: "Clear filters" }));
  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update));
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
