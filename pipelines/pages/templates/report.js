(() => {
  const box = document.getElementById("find"), told = document.getElementById("found");
  if (!box) return;
  const rows = [...document.querySelectorAll("#keys tbody tr")].map(row => [row, row.cells[0].textContent.toLowerCase()]);
  document.querySelectorAll(".js").forEach(part => part.hidden = false);
  box.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    let shown = 0;
    for (const [row, key] of rows) { row.hidden = !key.includes(wanted); shown += !row.hidden; }
    told.textContent = wanted ? `${shown} of ${rows.length} keys` : "";
  });
})();
