(() => {
  const $ = id => document.getElementById(id);
  const form = $("ask"), box = $("key"), list = $("names"), told = $("told");
  document.querySelectorAll(".js").forEach(part => part.hidden = false);
  // Addresses without empty fields.
  form.addEventListener("formdata", event => {
    for (const name of new Set(event.formData.keys())) {
      const values = event.formData.getAll(name).filter(value => value);
      event.formData.delete(name);
      for (const value of values) event.formData.append(name, value);
    }
  });
  // Known keys below the box: arrows choose, Enter takes, Escape closes.
  let last = 0, timer = 0, at = -1, found = [];
  function close() {
    last++;
    clearTimeout(timer);
    at = -1;
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  }
  function mark(place) {
    at = place;
    [...list.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === at)));
    if (at < 0) { box.removeAttribute("aria-activedescendant"); return; }
    box.setAttribute("aria-activedescendant", list.children[at].id);
    list.children[at].scrollIntoView({ block: "nearest" });
  }
  function take(place) {
    box.value = found[place].key;
    close();
    form.requestSubmit();
  }
  async function suggest() {
    const mine = ++last;
    let body = { names: [] };
    try {
      const answer = await fetch("names?" + new URLSearchParams({ q: box.value, file: form.dataset.file }));
      if (answer.ok) body = await answer.json();
    } catch (problem) {
      told.textContent = "The server does not answer; start hushgram explore again.";
    }
    if (mine !== last) return;
    found = body.names;
    if (!found.length) { close(); return; }
    list.replaceChildren(...found.map((name, i) => {
      const one = document.createElement("span");
      one.id = "name-" + i;
      one.setAttribute("role", "option");
      one.textContent = name.text;
      one.addEventListener("mousedown", event => event.preventDefault());
      one.addEventListener("click", () => take(i));
      return one;
    }));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    mark(-1);
  }
  box.addEventListener("input", () => {
    clearTimeout(timer);
    if (box.value) timer = setTimeout(suggest, 80); else close();
  });
  box.addEventListener("blur", close);
  box.addEventListener("keydown", event => {
    const open = !list.hidden, count = list.children.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (open) mark((at + (event.key === "ArrowDown" ? 1 : at < 0 ? 0 : -1) + count) % count);
      else suggest();
    } else if (event.key === "Enter" && open && at >= 0) {
      event.preventDefault();
      take(at);
    } else if (event.key === "Escape") {
      if (open) { event.preventDefault(); close(); } else box.value = "";
    }
  });
  // Key files: a chosen one, pasted lines, or many lines pasted into the box.
  async function load(name, content) {
    told.textContent = "Loading…";
    try {
      const answer = await fetch("keys?" + new URLSearchParams({ name }), {
        method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: content });
      const body = await answer.json();
      if (!answer.ok) { told.textContent = body.error; return; }
      const next = new URLSearchParams(location.search);
      for (const field of ["k", "sort", "rows", "by", "prefix"]) next.delete(field);
      next.set("file", body.file);
      location.search = next;
    } catch (problem) {
      told.textContent = "The file could not be sent; start hushgram explore again if it has ended.";
    }
  }
  $("load").addEventListener("click", () => {
    const file = $("upload").files[0];
    if (file) load(file.name, file); else load("pasted keys", $("pasted").value);
  });
  box.addEventListener("paste", event => {
    const text = event.clipboardData.getData("text");
    if (!text.trim().includes("\n")) return;
    event.preventDefault();
    document.querySelector(".load").open = true;
    $("pasted").value = text;
    load("pasted keys", text);
  });
})();
