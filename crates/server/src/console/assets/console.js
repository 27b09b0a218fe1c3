// What makes the console pleasant; without it everything works by forms and links. Writes text only as text, never as markup.
"use strict";
(() => {
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const typing = (element) => element && element.matches("input:not([type=checkbox]):not([type=radio]), textarea, select");

  // --- Relative times -------------------------------------------------------------------------------------------------------
  const spoken = (ms) => {
    const seconds = Math.round(Math.abs(ms) / 1000);
    const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, size]) => seconds >= size * 1.5) ?? ["s", 1];
    const text = `${Math.round(seconds / size)} ${unit}`;
    return ms >= 0 ? `in ${text}` : `${text} ago`;
  };
  const drift = Number(document.documentElement.dataset.now) - Date.now();
  const retime = () => {
    for (const time of all("time[data-relative]")) {
      const text = spoken(Date.parse(time.dateTime) - Date.now() - drift);
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // --- Live updates: the page is fetched again and its marked parts are exchanged ----------------------------------------------
  const say = (text) => { const live = one("#live"); if (live && live.textContent !== text) live.textContent = text; };
  const touched = (part) => all("textarea, input:not([type=checkbox]):not([type=hidden])", part)
    .some((field) => field.value !== field.defaultValue) || (typing(document.activeElement) && part.contains(document.activeElement));
  const exchange = (old, fresh) => {
    if (old.innerHTML === fresh.innerHTML) return false;
    const picked = new Set(all("input[type=checkbox]:checked", old).map((box) => box.value));
    const opened = new Set(all("details[open][id]", old).map((details) => details.id));
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
    for (const box of all("input[type=checkbox]", old)) box.checked = picked.has(box.value);
    for (const details of all("details[id]", old)) if (opened.has(details.id)) details.open = true;
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    return true;
  };
  let fetching = false, again = false;
  const refresh = async () => {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const response = await fetch(location.href, { headers: { "Placet-Live": "1", Accept: "text/html" }, credentials: "same-origin", redirect: "manual" });
      if (response.type === "opaqueredirect") { say("You are signed out. Load the page again to sign in."); feed?.close(); return; }
      if (!response.ok) return;
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      let changed = false, kept = false;
      for (const part of all("[data-live]")) {
        const next = one(`#${CSS.escape(part.id)}`, fresh);
        if (!next || part.innerHTML === next.innerHTML) continue;
        if (touched(part)) { kept = true; continue; }
        changed = exchange(part, next) || changed;
      }
      if (kept && part_changed(fresh)) say("Something changed while you were writing. Load the page again to see it; a decision on what is no longer shown is refused.");
      else if (changed) say(one("#summary", fresh)?.textContent.trim() || "This page was updated.");
      count_picked(); retime(); mark_row(row, false);
    } catch { /* The next event tries again. */ } finally {
      fetching = false;
      if (again) { again = false; soon(); }
    }
  };
  const part_changed = (fresh) => one("input[name=digest]")?.value !== one("input[name=digest]", fresh)?.value;
  let timer = 0;
  const soon = () => { clearTimeout(timer); timer = setTimeout(refresh, 250); };
  let feed = null;
  const listen = () => {
    if (feed || document.hidden || !one("[data-live]")) return;
    feed = new EventSource("/live");
    feed.addEventListener("desk", soon);
    feed.addEventListener("behind", soon);
    // The sign-in counts no more: the next look says so.
    feed.addEventListener("ended", refresh);
    // What happened between the making of the page and the beginning of the stream was told to nobody.
    feed.addEventListener("open", soon);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { feed?.close(); feed = null; } else { listen(); if (one("[data-live]")) soon(); }
  });

  // --- The inbox: choosing several, and the keyboard ---------------------------------------------------------------------------
  const count_picked = () => {
    const button = one("#together");
    if (!button) return;
    const count = all("input[name=pick]:checked").length;
    button.textContent = count ? `Look at ${count} chosen together` : "Look at the chosen ones together";
  };
  const offer_all = () => {
    const place = one("#pick-all");
    if (!place || place.firstChild) return;
    const box = document.createElement("input");
    box.type = "checkbox";
    box.setAttribute("aria-label", "Choose all on this page");
    box.addEventListener("change", () => { for (const other of all("input[name=pick]")) other.checked = box.checked; count_picked(); });
    place.append(box);
  };
  let row = -1;
  const mark_row = (next, move = true) => {
    const rows = all("tr[data-href]");
    if (!rows.length) return;
    for (const other of rows) other.classList.remove("current");
    if (next < 0) return;
    row = Math.min(next, rows.length - 1);
    rows[row].classList.add("current");
    if (move) { one("a", rows[row])?.focus(); rows[row].scrollIntoView({ block: "nearest" }); }
  };
  const keys = {
    j: () => mark_row(row + 1),
    k: () => mark_row(Math.max(row - 1, 0)),
    Enter: () => { const link = all("tr[data-href]")[row]; if (link && document.activeElement === document.body) location.href = link.dataset.href; },
    x: () => { const box = one("input[name=pick]", all("tr[data-href]")[row] ?? document.createElement("i")); if (box) { box.checked = !box.checked; count_picked(); } },
    a: () => choose("approve"),
    d: () => choose("deny"),
    "/": () => one("#search")?.focus(),
    "?": () => { location.href = "/help"; },
    i: () => { location.href = "/"; },
  };
  const choose = (what) => {
    const reason = one("#decide textarea[name=reason]");
    if (!reason) return;
    reason.focus();
    one("#decide")?.scrollIntoView({ block: "nearest" });
    say(what === "approve" ? "Write why, then press the button Approve." : "Write why, then press the button Deny.");
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && typing(document.activeElement)) { document.activeElement.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (!act) return;
    if (event.key !== "Enter") event.preventDefault();
    act();
  });
  document.addEventListener("change", (event) => { if (event.target.name === "pick") count_picked(); });

  offer_all(); count_picked(); retime(); listen();
  setInterval(retime, 15000);
})();
