// A time is chosen by dragging over a chart: the form's fields are filled in, and sent. In UTC, as they are.
const charts = document.getElementById("charts");
if (charts) {
  const form = document.getElementById("span"), hint = document.getElementById("drag");
  const { from, until, left, width } = Object.fromEntries(Object.entries(charts.dataset).map(([name, value]) => [name, Number(value)]));
  const unit = until - from > 3_600_000 ? 60_000 : 1_000; // nobody drags to the second over more than an hour
  const said = hint.textContent;
  let drag = null;
  const share = (svg, event) => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    return Math.min(Math.max((x - left) / (width - left), 0), 1);
  };
  const text = (instant) => new Date(instant).toISOString().slice(0, 19);
  const chosen = () => {
    const [first, last] = [drag.begin, drag.end].sort((a, b) => a - b).map((part) => from + part * (until - from));
    const start = Math.floor(first / unit) * unit;
    return [start, Math.max(Math.ceil(last / unit) * unit, start + unit)];
  };
  const show = () => {
    const [first, last] = [drag.begin, drag.end].sort((a, b) => a - b);
    drag.area.setAttribute("x", left + first * (width - left));
    drag.area.setAttribute("width", (last - first) * (width - left));
    hint.textContent = `From ${chosen().map((at) => text(at).replace("T", " ")).join(" until ")} UTC; Escape leaves it.`;
  };
  const leave = () => {
    drag?.area.remove();
    drag = null;
    hint.textContent = said;
  };
  hint.hidden = false;
  charts.querySelectorAll("svg").forEach((svg) => {
    svg.addEventListener("pointerdown", (event) => {
      if (event.button || drag) return;
      const area = document.createElementNS(svg.namespaceURI, "rect"), begin = share(svg, event);
      area.setAttribute("class", "chosen");
      area.setAttribute("height", svg.viewBox.baseVal.height);
      svg.append(area);
      svg.setPointerCapture(event.pointerId);
      drag = { area, begin, end: begin, at: event.clientX };
    });
    svg.addEventListener("pointermove", (event) => {
      if (!drag || drag.area.parentNode !== svg) return;
      drag.end = share(svg, event);
      show();
    });
    svg.addEventListener("pointerup", (event) => {
      if (!drag || drag.area.parentNode !== svg) return;
      drag.end = share(svg, event);
      const [start, end] = chosen(), is_click = Math.abs(event.clientX - drag.at) < 4;
      leave();
      if (is_click) return;
      form.elements.from.value = text(start);
      form.elements.until.value = text(end);
      form.action = "#time"; // back to the charts
      form.requestSubmit();
    });
    svg.addEventListener("pointercancel", leave);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") leave(); });
}
