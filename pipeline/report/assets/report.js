"use strict";
function saveCsv(name, columns, rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    // A leading = + - @ in text would be run as a formula by spreadsheets.
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const text = [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");

  function showTip(target) {
    tip.textContent = target.dataset.tip;
    tip.hidden = false;
    const spot = target.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const x = Math.min(Math.max(6, spot.left + spot.width / 2 - size.width / 2), innerWidth - size.width - 6);
    const above = spot.top - size.height - 8;
    tip.style.left = `${x}px`;
    tip.style.top = `${above > 4 ? above : spot.bottom + 8}px`;
  }
  for (const kind of ["pointerover", "focusin", "click"]) {
    document.addEventListener(kind, (event) => {
      const target = event.target.closest("[data-tip]");
      if (target) showTip(target);
      else if (kind !== "focusin") tip.hidden = true;
    });
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  for (const key of document.querySelectorAll("[data-toggle]")) {
    key.addEventListener("click", () => {
      const on = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", String(on));
      for (const series of key.closest("section").querySelectorAll(".series")) {
        if (series.dataset.series === key.dataset.toggle) series.classList.toggle("off", !on);
      }
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.v;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    }));
  }

  for (const button of document.querySelectorAll("[data-csv]")) {
    button.title = "Download the data as CSV";
    button.addEventListener("click", () => {
      const table = data.tables[button.dataset.csv];
      saveCsv(`${data.name}-${button.dataset.csv}`, table.columns, table.rows);
    });
  }
})();
