
"use strict";
// The page tells everything without this script: with it, a click on a column's title sorts by it.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const turn = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", turn > 0 ? "ascending" : "descending");
      const worth = (body) => body.rows[0].cells[column].dataset.worth;
      const order = (one, other) => {
        const [a, b] = [worth(one), worth(other)];
        // What is not known comes last, whichever way the rest goes.
        if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
        return turn * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
      };
      table.append(...Array.from(table.tBodies).sort(order));
    });
  });
}
