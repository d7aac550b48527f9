// What every widget of the page needs: colours, controls, intervals in words, curves, rows for CSV. Widgets add themselves to `widgets`.
const page = JSON.parse(document.getElementById("data").textContent);
const widgets = new Map();

const METRICS = {
  mean_worlds: "mean over clients' own worlds", worst_world: "worst world", control: "unperturbed control world",
  after_local: "after local training", alone: "each client alone in its world", train: "training episodes", start: "before training",
};
const ALGORITHMS = { grpo: "GRPO", ppo: "PPO" };
const narrow = () => window.innerWidth < 640;
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const fade = (color, alpha) => {
  const digits = color.length === 4 ? [...color.slice(1)].map((d) => d + d) : color.slice(1).match(/../g);
  return `rgba(${digits.map((d) => parseInt(d, 16)).join(",")},${alpha})`;
};
const group = (id) => (id === null || id === undefined ? null : page.groups[id]);
const known = (value) => value !== null && value !== undefined;
const percent = (value, digits = 1) => (known(value) ? `${(100 * value).toFixed(digits)}%` : "not measured");
const nameOf = (algorithm) => ALGORITHMS[algorithm] ?? algorithm;
const dashOf = { grpo: "solid", ppo: "dash" };
const symbolOf = { grpo: "circle", ppo: "diamond" };
const hueOf = { grpo: "c0", ppo: "c3" };

function spread(summary) {
  return summary && known(summary.low) ? ` [${(100 * summary.low).toFixed(1)}, ${(100 * summary.high).toFixed(1)}]` : "";
}
function rate(summary) {
  return summary && known(summary.mean) ? percent(summary.mean) + spread(summary) : "not measured";
}
function points(difference) {
  if (!difference || !known(difference.mean)) return "not measured";
  const show = (v) => `${v >= 0 ? "+" : "−"}${Math.abs(100 * v).toFixed(1)}`;
  const range = known(difference.low) ? ` [${show(difference.low)}, ${show(difference.high)}]` : " (one seed: no interval)";
  return `${show(difference.mean)} points${range}`;
}
function seedsOf(g) {
  return g ? `${g.seeds.length} seed${g.seeds.length === 1 ? "" : "s"}` : "";
}

// Plots.

function base(height) {
  const axis = { fixedrange: true, zeroline: false, gridcolor: ink("grid"), linecolor: ink("line"), tickcolor: ink("line"), automargin: true };
  return {
    height, autosize: true, margin: { l: 46, r: 14, t: 6, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: narrow() ? 12 : 13, color: ink("ink") },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false },
    hovermode: "closest", dragmode: false, bargap: 0.3,
    hoverlabel: { bgcolor: ink("card"), bordercolor: ink("soft"), font: { color: ink("ink") }, align: "left" },
    xaxis: { ...axis }, yaxis: { ...axis },
  };
}
function draw(id, traces, { height = 340, xaxis = {}, yaxis = {}, ...rest } = {}) {
  const layout = base(height);
  Object.assign(layout.xaxis, xaxis);
  Object.assign(layout.yaxis, yaxis);
  for (const axis of [layout.xaxis, layout.yaxis]) {
    if (axis.title) axis.title = { standoff: 8, ...axis.title, font: { size: narrow() ? 12 : 13, color: ink("soft") } };
  }
  return Plotly.react(id, traces, { ...layout, ...rest }, { displayModeBar: false, responsive: true, scrollZoom: false });
}
const rates = { tickformat: ".0%", range: [-0.02, 1.03], dtick: 0.25 };

function whiskers(summaries, key = "error_y") {
  const wide = (a, b) => (known(a) && known(b) ? a - b : 0);
  return {
    [key]: {
      type: "data", symmetric: false, thickness: 1.6, width: 4,
      array: summaries.map((s) => wide(s?.high, s?.mean)), arrayminus: summaries.map((s) => wide(s?.mean, s?.low)),
    },
  };
}
// A curve of a group: band over seeds, line, and markers where it was measured; `upTo` cuts it after a round.
function curve(g, metric, { name, color, dash = "solid", symbol = "circle", faint = false, band = true, upTo = Infinity, legend = !faint }) {
  const c = g.curve, m = c.metrics[metric];
  if (!m) return [];
  const at = c.round.map((r, i) => i).filter((i) => c.round[i] <= upTo && known(m.mean[i]));
  const take = (list) => at.map((i) => list[i]);
  const x = take(c.round), shared = { x, legendgroup: name, hoverinfo: "skip", mode: "lines", showlegend: false };
  const traces = [];
  if (!faint && band && at.some((i) => known(m.low[i]))) {
    const clear = { width: 0, color: "rgba(0,0,0,0)" };
    traces.push({ ...shared, y: at.map((i) => m.low[i] ?? m.mean[i]), line: clear });
    traces.push({ ...shared, y: at.map((i) => m.high[i] ?? m.mean[i]), line: clear, fill: "tonexty", fillcolor: fade(color, 0.16) });
  }
  const text = at.map((i) => `${name}<br>round ${c.round[i]}${known(c.episodes[i]) ? `, ${c.episodes[i].toLocaleString("en")} episodes` : ""}<br>`
    + `${percent(m.mean[i])}${known(m.low[i]) ? ` [${(100 * m.low[i]).toFixed(1)}, ${(100 * m.high[i]).toFixed(1)}]` : ""}, ${seedsOf(g)}`);
  traces.push({
    ...shared, y: take(m.mean), name, showlegend: legend, opacity: faint ? 0.3 : 1, mode: at.length > 45 ? "lines" : "lines+markers",
    line: { color, dash, width: faint ? 1.5 : 2.5 }, marker: { color, symbol, size: faint ? 4 : 7 },
    ...(faint ? {} : { text, hoverinfo: "text" }),
  });
  return traces;
}
function lastRound(g, metric) {
  const m = g?.curve.metrics[metric];
  return m ? Math.max(...g.curve.round.filter((r, i) => known(m.mean[i])), 0) : 0;
}
// The summary of a curve at a round: the last measurement up to there.
function summaryAt(g, metric, round) {
  const c = g?.curve, m = c?.metrics[metric];
  let found = null;
  if (m) c.round.forEach((r, i) => {
    if (r <= round && known(m.mean[i])) found = { round: r, episodes: c.episodes[i], mean: m.mean[i], low: m.low[i], high: m.high[i] };
  });
  return found;
}
// What to follow over rounds: held-out success where it was measured between start and end, else that of the round's training episodes.
function followed(...groups) {
  const between = groups.filter(known).some((g) => (g.curve.metrics.mean_worlds?.mean.filter(known).length ?? 0) > 2);
  return between || !groups.filter(known).some((g) => g.curve.metrics.train) ? "mean_worlds" : "train";
}
function limitLine(limit, from, to, name = "best any shared policy could do") {
  return { x: [from, to], y: [limit, limit], mode: "lines", name, line: { color: ink("ink"), dash: "dash", width: 1.6 }, hoverinfo: "skip" };
}

// Controls: native inputs, so the keyboard works as everywhere.

let serial = 0;
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter(known));
  return made;
}
class Widget {
  constructor(id, render, rows) {
    this.section = document.getElementById(id);
    this.id = id;
    this.spec = page.widgets[id];
    this.state = {};
    this.draw = render;
    this.rows = rows;
    this.after = [];
    this.controls = this.section.querySelector(".controls");
    this.section.querySelector("[data-save]")?.addEventListener("click", () => this.save());
    widgets.set(id, this);
  }
  // Radio buttons that look like a switch. options: [{key, label, missing}]
  choice(name, legend, options, start) {
    const usable = options.filter((o) => !o.missing);
    this.state[name] = (usable.find((o) => o.key === start) ?? usable[0])?.key ?? null;
    const line = element("div", { className: "seg" });
    const group = `${this.id}-${name}-${serial++}`;
    for (const option of options) {
      const input = element("input", { type: "radio", name: group, value: option.key, disabled: Boolean(option.missing) });
      input.checked = option.key === this.state[name];
      input.addEventListener("change", () => { this.state[name] = option.key; this.render(); });
      line.append(element("label", { title: option.missing ? `not in these results: ${option.label}` : "" }, input, element("span", { textContent: option.label })));
    }
    if (options.length > 1) this.controls.append(element("fieldset", {}, element("legend", { textContent: legend }), line));
  }
  select(name, legend, options, start) {
    this.state[name] = options.find((o) => o.key === start)?.key ?? options[0]?.key;
    const input = element("select");
    const blocks = new Map();
    for (const option of options) {
      const item = element("option", { value: option.key, textContent: option.label, selected: option.key === this.state[name] });
      if (!option.block) { input.append(item); continue; }
      if (!blocks.has(option.block)) {
        blocks.set(option.block, element("optgroup", { label: option.block }));
        input.append(blocks.get(option.block));
      }
      blocks.get(option.block).append(item);
    }
    input.addEventListener("change", () => { this.state[name] = input.value; this.render(); });
    if (options.length > 1) this.controls.append(element("label", { className: "pick" }, element("span", { textContent: legend }), input));
    return input;
  }
  // A slider over positions 0..n-1 with buttons beside it; `shown(i)` is the position in words.
  slider(name, legend, count, start, shown, buttons = ["Previous", "Next"]) {
    this.state[name] = start;
    const out = element("output");
    const input = element("input", { type: "range", min: 0, max: count() - 1, step: 1, value: start, ariaLabel: legend });
    const move = (to) => {
      const last = count() - 1;
      input.max = last;
      this.state[name] = Math.max(0, Math.min(last, to));
      input.value = this.state[name];
      out.textContent = shown(this.state[name]);
      input.setAttribute("aria-valuetext", out.textContent);
    };
    input.addEventListener("input", () => { move(Number(input.value)); this.render(); });
    const step = (by, text, sign) => {
      const button = element("button", { type: "button", className: "step", title: text, ariaLabel: text, textContent: sign });
      button.addEventListener("click", () => { move(this.state[name] + by); this.render(); });
      return button;
    };
    const line = element("div", { className: "slide" }, step(-1, buttons[0], "‹"), input, step(1, buttons[1], "›"));
    this.controls.append(element("div", { className: "range" }, element("span", { className: "legend-text", textContent: legend }), line, out));
    this.after.push(() => move(this.state[name]));
    return { move, line };
  }
  render() {
    for (const settle of this.after) settle();
    this.draw(this);
  }
  say(...nodes) {
    this.section.querySelector(".readout").replaceChildren(...nodes);
  }
  save() {
    const { columns, rows } = this.rows(this);
    saveCsv(`${page.name}-${this.id}`, columns, rows);
  }
}
function algorithmChoices(has) {
  const names = [...new Set([...Object.keys(ALGORITHMS), ...page.algorithms])];
  return names.map((key) => ({ key, label: nameOf(key), missing: !has(key) }));
}
// A number and its interval, neither of which breaks across lines.
function unbroken(text) {
  const [value, ...range] = text.split(/ (?=[[(])/);
  return [element("span", { textContent: value }), ...range.map((part) => element("small", { textContent: part }))].flatMap((part, i) => (i ? [" ", part] : [part]));
}
// Small boxes with a number each.
function tiles(entries) {
  return element("dl", { className: "numbers" }, ...entries.map(([term, text, kind = ""]) =>
    element("div", { className: kind }, element("dt", { textContent: term }), element("dd", {}, ...unbroken(text)))));
}
function sentence(text) {
  return element("p", { textContent: text });
}

// A label in lines of at most `width` letters, for an axis.
function lines(text, width = narrow() ? 17 : 27) {
  const out = [""];
  for (const word of text.split(" ")) {
    if (out.at(-1) && out.at(-1).length + word.length >= width) out.push("");
    out.push(`${out.pop()} ${word}`.trim());
  }
  return out;
}

// CSV: one row per number, long form.

const OF_GROUP = ["arm", "family", "variant", "severity", "algorithm", "mode", "seeds"];
const ofGroup = (g) => [g.label, g.family, g.variant, g.severity, g.algorithm, g.mode, g.seeds.join(" ")];
function curveRows(groups, metrics = Object.keys(METRICS)) {
  const rows = [];
  for (const g of groups) for (const metric of metrics) {
    const m = g.curve.metrics[metric];
    if (m) g.curve.round.forEach((r, i) => known(m.mean[i]) && rows.push([...ofGroup(g), metric, r, g.curve.episodes[i], m.mean[i], m.low[i], m.high[i]]));
  }
  return { columns: [...OF_GROUP, "metric", "round", "episodes", "mean", "low", "high"], rows };
}
function valueRows(groups) {
  const rows = [];
  for (const g of groups) for (const [metric, s] of Object.entries(g.values)) {
    rows.push([...ofGroup(g), metric, g.n, s.mean, s.low, s.high, s.boot_low, s.boot_high, g.floor, g.kind]);
  }
  return { columns: [...OF_GROUP, "metric", "n", "mean", "low", "high", "bootstrap_low", "bootstrap_high", "limit", "kind"], rows };
}
const together = (...parts) => {
  const columns = [...new Set(parts.flatMap((p) => p.columns))];
  return { columns, rows: parts.flatMap((p) => p.rows.map((row) => columns.map((c) => row[p.columns.indexOf(c)]))) };
};
const groupsOf = (...ids) => [...new Set(ids.flat(Infinity).filter(known))].map(group);
