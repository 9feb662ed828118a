"use strict";
(() => {
  const form = document.getElementById("controls");
  const shown = document.getElementById("shown");
  const rows = [...document.querySelectorAll("details.claim")];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const filters = [...form.querySelectorAll("select")];
  let followed = null; // the row that a link led to, which is shown whatever the filters say

  const matches = (row) => {
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    return (
      words.every((word) => texts.get(row).includes(word)) &&
      filters.every((filter) => !filter.value || row.dataset[filter.name].split(" ").includes(filter.value))
    );
  };

  const update = () => {
    const found = new Set(rows.filter(matches));
    for (const row of rows) row.hidden = !found.has(row) && row !== followed;
    const extra = followed && !found.has(followed) ? `, and ${followed.querySelector(".id").textContent}, which a link led to` : "";
    shown.textContent = `${found.size} of ${rows.length} claims match${extra}`;
  };

  const follow = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!rows.includes(target)) return;
    followed = target;
    update();
    target.open = true;
    target.scrollIntoView();
    target.querySelector("summary").focus({ preventScroll: true });
  };

  const filter = () => {
    followed = null;
    update();
  };

  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  const setOpen = (open) => rows.forEach((row) => row.hidden || (row.open = open));
  document.getElementById("expand").addEventListener("click", () => setOpen(true));
  document.getElementById("collapse").addEventListener("click", () => setOpen(false));

  window.addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash) follow(); // no other event: the address stays the same
  });

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = rows.filter((row) => !row.open);
    opened.forEach((row) => (row.open = true));
  });
  window.addEventListener("afterprint", () => opened.forEach((row) => (row.open = false)));

  window.addEventListener("load", follow); // once the browser has gone to the fragment, which takes the focus
  form.hidden = false;
  update();
})();
