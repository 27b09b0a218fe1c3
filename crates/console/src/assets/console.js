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

  // --- What is said to who does not see the page change ------------------------------------------------------------------------
  let saying = 0;
  const say = (...parts) => {
    const live = one("#live");
    if (!live) return;
    clearTimeout(saying);
    live.replaceChildren();
    // Emptied first: a text equal to the last one would else be read to nobody.
    saying = setTimeout(() => live.replaceChildren(...parts), 50);
  };
  // What a part is about in few words, without the times that pass by themselves.
  const told = (part) => all("[data-told], #summary", part).map((found) => found.textContent.trim().replace(/\s+/g, " ")).filter(Boolean).join(", ");
  const news_of = (old, fresh) => {
    const name = fresh.dataset.name, text = told(fresh);
    if (text && text !== told(old)) return name ? `${name}: ${text}` : text;
    return name ? `${name}: changed` : "";
  };

  // --- Live updates: the page is fetched again and its marked parts are exchanged ----------------------------------------------
  // What the server said of a part, so that neither the passing of time nor what somebody opened or chose counts as a change.
  const plain = (part) => {
    const copy = part.cloneNode(true);
    for (const time of all("time[data-relative]", copy)) time.textContent = "";
    return copy.innerHTML;
  };
  const shown = new Map(all("[data-live]").map((part) => [part.id, plain(part)]));
  const touched = (part) => all("textarea, input:not([type=checkbox]):not([type=hidden])", part)
    .some((field) => field.value !== field.defaultValue) || (typing(document.activeElement) && part.contains(document.activeElement));
  // How to find what has the focus once its part is another: by its id, or as the same thing at the same place below the nearest id.
  const place_of_focus = (part) => {
    const element = document.activeElement;
    if (!element || !part.contains(element)) return null;
    if (element.id) return () => document.getElementById(element.id);
    const places = "a[href], button, input, select, textarea, summary, [tabindex]";
    const near = element.closest("[id]"), at = all(places, near).indexOf(element);
    const { tagName, textContent } = element;
    return () => {
      const anchor = document.getElementById(near.id);
      const found = anchor && all(places, anchor)[at];
      return found && found.tagName === tagName && found.textContent === textContent ? found : null;
    };
  };
  const exchange = (old, fresh) => {
    const picked = new Set(all("input[type=checkbox]:checked", old).map((box) => box.value));
    const opened = new Map(all("details[id]", old).map((details) => [details.id, details.open]));
    const find = place_of_focus(old);
    old.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
    for (const box of all("input[type=checkbox]", old)) box.checked = picked.has(box.value);
    for (const details of all("details[id]", old)) if (opened.has(details.id)) details.open = opened.get(details.id);
    if (!find) return;
    const next = find();
    // What had it is gone: the focus stays at its part, and never goes to another button.
    if (!next) old.tabIndex = -1;
    (next ?? old).focus({ preventScroll: true });
  };
  // A page may stand under the address of its form: it says where it is looked at again.
  const address = () => one("[data-address]")?.dataset.address ?? location.href;
  const digest_in = (page) => one("input[name=digest]", page)?.value ?? "";
  let fetching = false, again = false, looked = -Infinity, failed = 0, warned = null;
  const take = (fresh) => {
    const news = [];
    let changed = false, kept = false;
    for (const part of all("[data-live]")) {
      const next = one(`#${CSS.escape(part.id)}`, fresh);
      const text = next && plain(next);
      if (!next || shown.get(part.id) === text) continue;
      if (touched(part)) { kept = true; continue; }
      news.push(news_of(part, next));
      exchange(part, next);
      shown.set(part.id, text);
      changed = true;
    }
    const digest = digest_in(fresh);
    if (kept && digest !== digest_in(document) && digest !== warned) {
      warned = digest;
      news.push("Something changed while you were writing. Load the page again to see it; a decision on what is no longer shown is refused");
    }
    const words = news.filter(Boolean);
    if (words.length) say(`${words.join(". ")}.`.replace(/\.\.$/, "."));
    else if (changed && !one("[data-name], [data-told], #summary")) say("This page was updated.");
    if (changed) { offer_all(); count_picked(); mark_row(row, false); }
    retime();
  };
  const refresh = async () => {
    if (fetching) { again = true; return; }
    fetching = true;
    looked = performance.now();
    try {
      const response = await fetch(address(), {
        headers: { "Placet-Live": "1", Accept: "text/html" }, credentials: "same-origin", redirect: "manual", signal: AbortSignal.timeout(30_000),
      });
      if (response.type === "opaqueredirect") { signed_out(); return; }
      if (response.status >= 500 || response.status === 429) throw new Error("not now");
      failed = 0;
      if (!response.ok) { say("This page is not yours to see any more, or is gone. Load it again."); return; }
      take(new DOMParser().parseFromString(await response.text(), "text/html"));
    } catch {
      failed += 1;
      setTimeout(soon, pause_after(failed));
    } finally {
      fetching = false;
      if (again) { again = false; soon(); }
    }
  };
  const pause_after = (times) => Math.min(1000 * 2 ** (times - 1), 60_000) * (0.5 + Math.random() / 2);
  // Soon after the first of several news, and once a second at most: however many there are, none is waited out.
  let timer = 0;
  const soon = () => {
    if (timer || is_out || document.hidden) return;
    timer = setTimeout(() => { timer = 0; refresh(); }, Math.max(250, looked + 1000 - performance.now()));
  };

  // --- The line by which news come ---------------------------------------------------------------------------------------------
  let feed = null, tries = 0, retry = 0, complaint = 0, has_complained = false, is_out = false;
  const hang_up = () => {
    feed?.close();
    feed = null;
    clearTimeout(retry);
    clearTimeout(complaint);
    complaint = 0;
  };
  const signed_out = () => {
    hang_up();
    is_out = true;
    const link = document.createElement("a"), { pathname, search } = new URL(address(), location.href);
    link.href = `/sign-in?to=${encodeURIComponent(pathname + search)}`;
    link.textContent = "Sign in again";
    say("You are signed out. ", link);
  };
  const is_back = () => {
    tries = 0;
    clearTimeout(complaint);
    complaint = 0;
    if (has_complained) say("The connection is back.");
    has_complained = false;
    soon();
  };
  const is_lost = (own) => {
    if (own !== feed) return;
    complaint ||= setTimeout(() => {
      has_complained = true;
      say("The connection is lost, so this page may be old. It is tried again.");
    }, 10_000);
    // The browser itself tries again where a connection breaks, and gives up for good at any answer that is no stream.
    if (own.readyState !== EventSource.CLOSED) return;
    feed = null;
    tries += 1;
    retry = setTimeout(listen, pause_after(tries));
    // Anyone who is signed out learns it here.
    refresh();
  };
  const listen = () => {
    clearTimeout(retry);
    if (feed || is_out || document.hidden || !one("[data-live]")) return;
    const own = new EventSource("/live");
    feed = own;
    own.addEventListener("approvals", soon);
    own.addEventListener("behind", soon);
    // The sign-in counts no more: the next look says so.
    own.addEventListener("ended", refresh);
    // What happened between the making of the page and the beginning of the stream was told to nobody.
    own.addEventListener("open", is_back);
    own.addEventListener("error", () => is_lost(own));
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { hang_up(); return; }
    // Somebody may have signed in again in another window.
    is_out = false;
    listen();
    if (one("[data-live]")) soon();
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
  // Whether the keys are listened to: anyone who speaks to their computer switches them off. A browser that remembers nothing has them on.
  const KEYS = "placet.keys";
  const has_keys = () => { try { return localStorage.getItem(KEYS) !== "off"; } catch { return true; } };
  const offer_switch = () => {
    const place = one("#keys-switch"), box = one("#keys-on");
    if (!place || !box) return;
    place.hidden = false;
    box.checked = has_keys();
    box.addEventListener("change", () => {
      try { localStorage.setItem(KEYS, box.checked ? "on" : "off"); } catch { say("This browser does not remember it."); }
    });
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && typing(document.activeElement)) { document.activeElement.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (!act || !has_keys()) return;
    if (event.key !== "Enter") event.preventDefault();
    act();
  });
  document.addEventListener("change", (event) => { if (event.target.name === "pick") count_picked(); });

  offer_all(); count_picked(); offer_switch(); retime(); listen();
  setInterval(retime, 15000);
})();
