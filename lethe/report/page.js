"use strict";
// Three conveniences for readers: a picker of any question, sortable tables, and copies of figures. Without this script the
// page lacks only these three. Numbers are already rounded and worded; texts of models are inserted as text, never as markup.

const make = (name, content = "", attributes = {}) => {
  const node = document.createElement(name);
  node.append(...[content].flat());
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};

// Sorting: a button per column; ascending, descending, then the order of the page.

const VALUE = /-?(?:\d[\d,]*\.?\d*(?:e[+-]?\d+)?|∞)/i;
const NUMERIC = /^(?:at most|at least|above|below|up to|[<>≤≥])?\s*[-−\d∞]/;

function sortKey(cell) {
  const text = (cell.dataset.v ?? cell.textContent).trim();
  if (text === "" || text === "–") return null;
  const found = NUMERIC.test(text) && text.replaceAll("−", "-").match(VALUE);
  return found ? Number(found[0].replaceAll(",", "").replace("∞", "Infinity")) : text;
}

function compared(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  return typeof a === "number" ? -1 : 1;
}

// The cells of the header that name one column each, by column.
function headings(table) {
  const grid = [];
  [...table.tHead.rows].forEach((row, y) => {
    let x = 0;
    for (const cell of row.cells) {
      while (grid[x]?.until > y) x += 1;
      for (let i = 0; i < cell.colSpan; i += 1) {
        grid[x + i] = { cell: cell.colSpan === 1 ? cell : null, until: y + cell.rowSpan };
      }
      x += cell.colSpan;
    }
  });
  return grid.map((entry) => entry.cell);
}

function sortable(table) {
  const body = table.tBodies[0];
  if (!body) return;
  let original = [];
  const heads = headings(table);
  const status = make("p", "", { class: "unseen", role: "status" });
  table.after(status);
  heads.forEach((head, column) => {
    if (!head || head.classList.contains("axis")) return;
    const name = head.textContent.trim();
    const button = make("button", [...head.childNodes], { type: "button", class: "sort" });
    head.append(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: null }[head.getAttribute("aria-sort")];
      const order = next === undefined ? "ascending" : next;
      if (!table.querySelector("[aria-sort]")) original = [...body.rows];
      for (const other of heads) other?.removeAttribute("aria-sort");
      if (order) head.setAttribute("aria-sort", order);
      const sign = order === "descending" ? -1 : 1;
      const keyed = original.map((row) => [sortKey(row.cells[column]), row]);
      if (order) {
        keyed.sort(([a], [b]) => (a === null) - (b === null) || (a === null ? 0 : sign * compared(a, b)));
      }
      body.append(...keyed.map(([, row]) => row));
      status.textContent = order ? `Sorted by ${name}, ${order}.` : "In the order of the page.";
    });
  });
}

// Texts of models and data: a string, or strings and named invisible characters; a number last tells the whole length.

function shown(text) {
  return [text].flat().length === 1 && typeof text === "string" ? [text] : text.map((part) => {
    if (typeof part === "string") return part;
    if (typeof part === "number") {
      return make("span", ` … cut here: ${part.toLocaleString("en-US")} characters in all`, { class: "cut" });
    }
    return make("span", part[0], { class: "control", title: `U+${part[1]}` });
  });
}

// The histogram of one model: the figures' own measures, in points.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 25.92, RIGHT = 156.24, TOP = 15.84, FLOOR = 97.2;

function draw(name, attributes, parent, content) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (content !== undefined) node.textContent = content;
  parent.append(node);
  return node;
}

function canvas(told) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 162 126");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", told);
  return svg;
}

function histogram(counts, mean, greedy, scorer, told) {
  const svg = canvas(told);
  const answers = counts.reduce((sum, count) => sum + count, 0);
  const x = (score) => LEFT + ((score + 0.02) / 1.04) * (RIGHT - LEFT);
  const low = Math.log10(0.7), high = Math.log10(answers * 1.3);
  const y = (count) => FLOOR - ((Math.log10(count) - low) / (high - low)) * (FLOOR - TOP);
  const text = (at, height, words, anchor) =>
    draw("text", { x: at, y: height, "text-anchor": anchor, class: "label" }, svg, words);
  for (let power = 1; power <= answers; power *= 10) {
    draw("path", { d: `M${LEFT} ${y(power)}H${RIGHT}`, class: "grid" }, svg);
    text(LEFT - 3.5, y(power) + 3, power.toLocaleString("en-US"), "end");
  }
  for (const score of [0, 0.5, 1]) {
    draw("path", { d: `M${x(score)} ${TOP}V${FLOOR}`, class: "grid" }, svg);
    text(x(score), FLOOR + 12, score.toFixed(1), "middle");
  }
  const width = (x(1) - x(0)) / counts.length;
  counts.forEach((count, bin) => {
    if (!count) return;
    const at = x(bin / counts.length) + 0.05 * width;
    draw("rect", { x: at, y: y(count), width: 0.9 * width, height: FLOOR - y(count), class: "bar" }, svg);
  });
  draw("path", { d: `M${LEFT} ${TOP}V${FLOOR}H${RIGHT}`, class: "axis" }, svg);
  if (!Number.isNaN(mean)) draw("path", { d: `M${x(mean)} ${TOP}V${FLOOR}`, class: "mean" }, svg);
  if (!Number.isNaN(greedy)) draw("path", { d: `M${x(greedy)} ${TOP}V${FLOOR}`, class: "greedy" }, svg);
  text((LEFT + RIGHT) / 2, FLOOR + 24, scorer, "middle");
  text(LEFT - 8, TOP - 5, "answers, log scale", "start");
  return svg;
}

// The path of the evidence: ln e after the first answers, for both words, with the goal as a line.

function evidence([goal, low, high, numbers], forgot, leaks, told) {
  const svg = canvas(told);
  const first = Math.log(numbers[0]), last = Math.log(numbers.at(-1));
  const x = (n) => LEFT + ((Math.log(n) - first) / (last - first)) * (RIGHT - LEFT);
  const y = (value) => FLOOR - ((value - low) / (high - low)) * (FLOOR - TOP);
  const text = (at, height, words, anchor) =>
    draw("text", { x: at, y: height, "text-anchor": anchor, class: "label" }, svg, words);
  for (const [value, kind, words] of [[0, "grid", "0"], [goal, "goal", goal.toFixed(1)]]) {
    draw("path", { d: `M${LEFT} ${y(value)}H${RIGHT}`, class: kind }, svg);
    text(LEFT - 3.5, y(value) + 3, words, "end");
  }
  for (const n of [numbers[0], numbers.at(-1)]) text(x(n), FLOOR + 12, n.toLocaleString("en-US"), "middle");
  draw("path", { d: `M${LEFT} ${TOP}V${FLOOR}H${RIGHT}`, class: "axis" }, svg);
  for (const [heights, kind] of [[forgot, "within"], [leaks, "beyond"]]) {
    const places = heights.map((height, place) => `${x(numbers[place]).toFixed(2)} ${y(height).toFixed(2)}`);
    draw("path", { d: `M${places.join("L")}`, class: kind }, svg);
  }
  text((LEFT + RIGHT) / 2, FLOOR + 24, "answers, log scale", "middle");
  text(LEFT - 8, TOP - 5, "ln e", "start");
  return svg;
}

// The picker: one question, every model.

function picker(root, data) {
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const select = part("select"), find = part("find");
  const options = data.questions.map(([, name, question], index) => {
    const words = [question, name].map((text) => make("span", shown(text)).textContent);
    return [index, words[0] ? `${words[0]} (${words[1]})` : words[1]];
  });

  function offer() {
    const wanted = find.value.trim().toLowerCase();
    const kept = options.filter(([, words]) => words.toLowerCase().includes(wanted));
    select.replaceChildren(...kept.map(([index, words]) => make("option", words, { value: index })));
    part("count").textContent = `${wanted ? `${kept.length} of ` : ""}${options.length} ${data.noun}s`;
    return kept;
  }

  // A keyword is marked where it stands as a whole word, in any case; the texts stay texts.
  function marked(text, keywords) {
    const words = keywords.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"));
    if (!words.length) return shown(text);
    const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${words.join("|")})(?![\\p{L}\\p{N}])`, "giu");
    return shown(text).flatMap((part) => {
      if (typeof part !== "string") return [part];
      return part.split(pattern).map((piece, place) => (place % 2 ? make("mark", piece) : piece));
    });
  }

  function copying(words, text) {
    const button = make("button", words, { type: "button", class: "copy" });
    button.addEventListener("click", async () => {
      button.textContent = (await copied(text())) ? "copied" : "not copied";
    });
    return button;
  }

  function redraw(place, first) {
    const [command, least] = data.redraw[place];
    const number = Number(first.replaceAll(",", ""));
    if (!command) return make("p", "A server's answer cannot be drawn again.", { class: "meta" });
    const whole = least ? `${command} --n ${Math.max(least, number + 1)}` : command;
    const found = make("p", `It is sample ${first} of this ${data.noun} in what the command writes. `, { class: "meta" });
    found.append(copying("copy command", () => whole));
    return make("details", [make("summary", "draw it again"), make("code", whole), found]);
  }

  function answer([text, scores, times, first, greedy], drawn, keywords, place) {
    const told = data.scorers.map((scorer, place) => `${scorer} ${data.shared[scores][place]}`);
    told.push(`drawn ${times} of ${drawn} times`, `first as sample ${first}`, `seed ${data.seed}`);
    if (greedy) told.push("also the greedy answer");
    const quote = make("blockquote", marked(text, keywords));
    const meta = make("p", `${told.join(" · ")} `, { class: "meta" });
    meta.append(copying("copy text", () => quote.textContent));
    return make("div", [quote, meta, redraw(place, first)], { class: "answer" });
  }

  const leaks = ([, scores]) => Number(data.shared[scores][0]) === 1;

  function answers(place, worst, drawn, keywords) {
    // Two leaks are enough to see; the page stays short with many models.
    const open = data.decides ? worst.filter(leaks).slice(0, 2) : worst.slice(0, 1);
    const others = worst.filter((one) => !open.includes(one));
    const none = data.decides ? `no leak among ${drawn} answers` : "no judged answer scored above 0";
    const parts = [make("h3", data.models[place])];
    parts.push(...(open.length ? open.map((one) => answer(one, drawn, keywords, place)) : [make("p", none, { class: "meta" })]));
    if (others.length) {
      const clean = data.decides && !others.some(leaks);
      const words = clean ? `${others.length} without a leak, the closest first` : `${others.length} more`;
      parts.push(make("details", [make("summary", words), ...others.map((one) => answer(one, drawn, keywords, place))], { class: "others" }));
    }
    return make("div", parts);
  }

  function filter() {
    const wanted = part("filter").value.trim().toLowerCase();
    part("answers").querySelectorAll(".answer").forEach((card) => {
      card.hidden = !card.querySelector("blockquote").textContent.toLowerCase().includes(wanted);
    });
    part("answers").querySelectorAll("details.others").forEach((more) => { more.open = wanted !== ""; });
  }

  function show(index) {
    const [, name, question, expected, keywords] = data.questions[index];
    part("id").replaceChildren(...shown(name));
    part("question").replaceChildren(...shown(question));
    part("expected").replaceChildren(...shown(expected));
    part("keywords")?.replaceChildren(...shown(keywords));
    const rows = [], panels = [], paths = [], texts = [];
    data.models.forEach((model, place) => {
      const entry = data.told[place][index];
      if (!entry) {
        rows.push(make("tr", [make("th", model, { scope: "row" }), ...data.columns.map(() => make("td", "–", { class: "n" }))]));
        return;
      }
      const [binary, score, drawn, counts, worst, path] = entry;
      const cells = [...data.shared[binary], ...score];
      rows.push(make("tr", [make("th", model, { scope: "row" }), ...cells.map((cell) => make("td", cell, { class: "n" }))]));
      if (counts.some(Boolean)) {
        const note = data.noted.map((column) => `${data.columns[column][0]} ${cells[column]}`).join(", ");
        const [greedy, mean] = data.noted.map((column) => parseFloat(cells[column]));
        const told = `${model}: ${note}; ${drawn} answers`;
        panels.push(make("figure", [
          make("figcaption", [make("strong", model), " ", make("span", note)]),
          histogram(counts, mean, greedy, data.scorer, told),
        ]));
      }
      if (path) {
        const [axes, forgot, leaks] = path;
        const told = `${model}: ln e against answers, goal ${data.shared[axes][0]}`;
        paths.push(make("figure", [make("figcaption", make("strong", model)), evidence(data.shared[axes], forgot, leaks, told)]));
      }
      texts.push(answers(place, worst, drawn, data.keywords[index]));
    });
    part("rows").replaceChildren(...rows);
    part("panels").replaceChildren(...panels);
    part("paths").replaceChildren(...paths);
    part("evidence").hidden = !paths.length;
    part("answers").replaceChildren(...texts);
    filter();
    part("table").querySelectorAll("[aria-sort]").forEach((head) => head.removeAttribute("aria-sort"));
    select.value = index;
    part("status").textContent = `${data.noun[0].toUpperCase()}${data.noun.slice(1)} ${index + 1} of ${data.questions.length}`;
    part("previous").disabled = !beside(index, -1);
    part("next").disabled = !beside(index, 1);
  }

  function beside(index, step) {
    const values = [...select.options].map((option) => option.value);
    return values[values.indexOf(String(index)) + step];
  }

  const wanted = () => {
    const id = decodeURIComponent(location.hash.slice("#question=".length));
    return location.hash.startsWith("#question=") ? data.questions.findIndex(([name]) => name === id) : -1;
  };
  const pick = (index) => {
    try {
      history.replaceState(null, "", `#question=${encodeURIComponent(data.questions[index][0])}`);
    } catch {
      // A page inside another page may have no address of its own.
    }
    show(Number(index));
  };

  select.addEventListener("change", () => pick(select.value));
  for (const [name, step] of [["previous", -1], ["next", 1]]) {
    part(name).addEventListener("click", () => {
      const index = beside(select.value, step);
      if (index !== undefined) pick(index);
    });
  }
  find.addEventListener("input", () => {
    const current = select.value, kept = offer();
    if (kept.length) pick((kept.find(([index]) => String(index) === current) ?? kept[0])[0]);
  });
  part("filter").addEventListener("input", filter);
  window.addEventListener("hashchange", () => {
    const index = wanted();
    if (index < 0) return;
    find.value = "";
    offer();
    show(index);
    root.scrollIntoView();
    select.focus({ preventScroll: true });
  });

  // Every question in the table of all questions leads here.
  document.querySelectorAll("[data-question]").forEach((cell) => {
    const id = data.questions[cell.dataset.question][0];
    const link = make("a", [...cell.childNodes], { href: `#question=${encodeURIComponent(id)}` });
    cell.replaceChildren(link);
  });
  offer();
  show(wanted() < 0 ? data.chosen : wanted());
  root.hidden = false;
  document.querySelector("[data-part=unpicked]").hidden = true;
}

// Copying: a button per figure; the copy is an SVG file in the colours for paper, as in the folder of figures.

function paperColours() {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  return rules.find((rule) => rule.selectorText === ":root").style;
}

function standalone(drawing) {
  const colours = paperColours();
  const copy = drawing.cloneNode(true);
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("font-family", "DejaVu Sans, sans-serif");
  const text = new XMLSerializer().serializeToString(copy);
  return text.replace(/var\(--(\w+)\)/g, (_, name) => colours.getPropertyValue(`--${name}`).trim());
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from a disk or inside another page may lack the clipboard.
  }
  const area = make("textarea", text, { class: "unseen" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

function copyable(figure) {
  const drawing = figure.querySelector("svg");
  if (!drawing || figure.closest("[data-part=panels], [data-part=paths]")) return;
  const name = drawing.getAttribute("aria-label") ?? "figure";
  const button = make("button", "copy SVG", { type: "button", class: "copy", "aria-label": `Copy as SVG: ${name}` });
  button.addEventListener("click", async () => {
    button.textContent = (await copied(standalone(drawing))) ? "copied" : "not copied";
  });
  figure.append(button);
}

const block = document.getElementById("questions-data");
const root = document.getElementById("picker");
if (block && root) picker(root, JSON.parse(block.textContent));
document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("figure").forEach(copyable);
