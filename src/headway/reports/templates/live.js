"use strict";
// What the server sends is put in the place of what stood there; what a reader has opened, sorted or
// scrolled stays as it was. `sortable` is page.js's.
const connection = document.getElementById("connection");
const FOCUSABLE = "summary, button, pre";

function say(words, lost = false) {
  if (connection.textContent !== words) connection.textContent = words;
  connection.classList.toggle("lost", lost);
}

function parsed(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content.firstElementChild;
}

function put(id, html) {
  const old = document.getElementById(id);
  const fresh = parsed(html);
  if (!old || !fresh) return;
  for (const open of old.querySelectorAll("details[open]")) {
    const row = open.closest("tbody");
    const same = row.id === id ? fresh : fresh.querySelector("#" + CSS.escape(row.id));
    if (same) same.querySelector("details").open = true;
  }
  const places = Array.from(old.querySelectorAll("pre, .scroll"), (one) => [
    one.scrollLeft, one.scrollTop, one.scrollTop + one.clientHeight >= one.scrollHeight - 4,
  ]);
  const focused = Array.from(old.querySelectorAll(FOCUSABLE)).indexOf(document.activeElement);
  const sorted = sortedBy(old);
  old.replaceWith(fresh);
  fresh.querySelectorAll("table.sortable").forEach((table) => sortable(table, sorted));
  fresh.querySelectorAll("pre, .scroll").forEach((one, n) => {
    if (!places[n]) return;
    const [left, top, atEnd] = places[n];
    one.scrollLeft = left;
    one.scrollTop = atEnd ? one.scrollHeight : top; // the end of a log stays in sight
  });
  if (focused >= 0) fresh.querySelectorAll(FOCUSABLE)[focused]?.focus({ preventScroll: true });
}

const source = new EventSource("events?since=" + encodeURIComponent(document.body.dataset.version));
source.addEventListener("open", () => say("Live."));
source.addEventListener("error", () => {
  const ended = source.readyState === EventSource.CLOSED;
  say(ended ? "The server does not answer any more: start headway serve again." :
    "The connection was lost: what you see may be old. Trying again.", true);
});
source.addEventListener("pieces", (event) => {
  const sent = JSON.parse(event.data);
  document.title = sent.title;
  for (const [id, html] of Object.entries(sent.pieces)) put(id, html);
  document.querySelectorAll("table.sortable").forEach((table) => resort(table));
  say(sent.trouble || (sent.live ? "Live." : "It has ended."), Boolean(sent.trouble));
});
