// The table of streams: sorted by a column's button, filtered by words. Without script it is whole.
const table = document.getElementById("streams");
if (table) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column], known = cell.dataset.sort;
    return known === undefined ? cell.textContent.trim() : Number(known);
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
      rows.sort((a, b) => order(value(a, column), value(b, column)));
      body.append(...rows);
    });
  });
  const find = document.getElementById("find");
  find.hidden = false;
  find.addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    });
    find.querySelector("[role=status]").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  });
}
