(() => {
  const SHOWN = 500;
  const $ = id => document.getElementById(id);
  const number = value => value.toLocaleString("en-US");
  let last = 0, timer = 0;
  function cell(row, text, numeric) {
    const made = row.insertCell();
    made.textContent = text;
    if (numeric) made.className = "n"; else made.className = "key";
  }
  function show(body) {
    const head = $("answers").tHead.rows[0], rows = $("answers").tBodies[0];
    head.replaceChildren(); rows.replaceChildren();
    for (const title of ["key", ...body.names]) {
      const th = document.createElement("th");
      th.textContent = title; if (title !== "key") th.className = "n";
      head.append(th);
    }
    body.rows.slice(0, SHOWN).forEach((answer, i) => {
      const row = rows.insertRow();
      cell(row, answer[0], false);
      for (const text of body.texts[i]) cell(row, text, true);
    });
    const totals = $("totals").tBodies[0];
    totals.replaceChildren();
    for (const total of body.totals) {
      const row = totals.insertRow();
      cell(row, total.sketch, false);
      cell(row, number(total.keys), true);
      if (total.error) cell(row, total.error, false);
      else for (const text of total.texts) cell(row, text, true);
    }
    $("answers").hidden = $("totals").hidden = !body.rows.length;
    $("csv").disabled = !body.rows.length;
    $("status").textContent = body.rows.length ? [`${body.rows.length} keys`, ...body.warnings].join("; ") : "Type or paste keys.";
    $("more").textContent = body.rows.length > SHOWN ? `The first ${SHOWN} are shown; the CSV has all.` : "";
  }
  async function ask(path) {
    return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ keys: $("keys").value.split("\n").map(k => k.replace(/\r$/, "")).filter(k => k), level: +$("level").value }) });
  }
  async function refresh() {
    const mine = ++last;
    try {
      const answer = await ask("ask");
      const body = await answer.json();
      if (mine !== last) return;
      if (answer.ok) show(body); else $("status").textContent = body.error;
    } catch (problem) {
      if (mine === last) $("status").textContent = "The server does not answer; start hushgram explore again.";
    }
  }
  const soon = () => { clearTimeout(timer); timer = setTimeout(refresh, 150); };
  $("keys").addEventListener("input", soon);
  $("level").addEventListener("change", soon);
  $("csv").addEventListener("click", async () => {
    const answer = await ask("csv");
    if (!answer.ok) { $("status").textContent = (await answer.json()).error; return; }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = "answers.csv"; link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
