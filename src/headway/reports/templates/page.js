"use strict";
// The page tells everything without this script: with it, a click on a column's title sorts by it.

function rank(column, turn) {
  const worth = (body) => body.rows[0].cells[column]?.dataset.worth;
  return (one, other) => {
    const [a, b] = [worth(one), worth(other)];
    // What is not known comes last, whichever way the rest goes.
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return turn * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
  };
}

// Which column's title a table is sorted by, and which way; undefined where by none.
function sortedBy(place) {
  const head = place.querySelector("th[aria-sort]");
  return head && { title: head.textContent, way: head.getAttribute("aria-sort") };
}

function resort(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
  if (column < 0) return;
  const turn = heads[column].getAttribute("aria-sort") === "ascending" ? 1 : -1;
  const bodies = Array.from(table.tBodies);
  const order = [...bodies].sort(rank(column, turn));
  if (order.some((body, n) => body !== bodies[n])) table.append(...order);
}

function sortable(table, by) {
  const heads = Array.from(table.tHead.rows[0].cells);
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    if (by && head.textContent === by.title) head.setAttribute("aria-sort", by.way);
    button.addEventListener("click", () => {
      const way = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way);
      resort(table);
    });
  }
  resort(table);
}

document.querySelectorAll("table.sortable").forEach((table) => sortable(table));
