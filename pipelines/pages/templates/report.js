(() => {
  const shown = cell => cell.dataset.v ?? cell.textContent.trim();
  const number = text => text === "" ? NaN : +text;
  const quoted = text => {
    const safe = /^[=+\-@\t\r\n\uff0b\uff0d\uff1d\uff20]/.test(text) && isNaN(number(text)) ? "'" + text : text;
    return /[",\r\n]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  };
  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name; link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  for (const part of document.querySelectorAll(".data")) {
    const body = part.querySelector("tbody"), heads = [...part.querySelectorAll("thead th")];
    const told = part.querySelector("[role=status]"), box = part.querySelector("input");
    const texts = heads.map((th, i) => i).filter(i => heads[i].matches(".key, .text"));
    const rows = [...body.rows].map(row => [row, texts.map(i => row.cells[i].textContent).join("\n").toLowerCase()]);
    part.querySelector(".tools").hidden = false;
    box?.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase();
      let count = 0;
      for (const [row, text] of rows) { row.hidden = !text.includes(wanted); count += !row.hidden; }
      told.textContent = wanted ? `${count.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} rows` : "";
    });
    heads.forEach((th, i) => {
      if (!th.dataset.field) return;
      const button = document.createElement("button");
      button.type = "button"; button.textContent = th.textContent;
      th.replaceChildren(button);
      button.addEventListener("click", () => {
        const numeric = th.matches(".n");
        const before = th.getAttribute("aria-sort");
        const down = before ? before === "ascending" : numeric && th.dataset.field !== "rank";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        const keyed = rows.map(([row]) => [row, numeric ? number(shown(row.cells[i])) : shown(row.cells[i]).toLowerCase()]);
        const empty = value => value !== value || value === "";
        keyed.sort(([, a], [, b]) => empty(a) || empty(b) ? empty(a) - empty(b)
          : (down ? -1 : 1) * (numeric ? a - b : a < b ? -1 : a > b ? 1 : 0));
        body.append(...keyed.map(([row]) => row));
      });
    });
    part.querySelector(".tools button").addEventListener("click", () => {
      const fields = heads.map((th, i) => i).filter(i => heads[i].dataset.field);
      const lines = [...body.rows].filter(row => !row.hidden).map(row => fields.map(i => quoted(shown(row.cells[i]))));
      save(part.dataset.file, [fields.map(i => heads[i].dataset.field), ...lines].map(line => line.join(",") + "\n").join(""));
    });
  }
})();
