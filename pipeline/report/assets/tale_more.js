// Widgets on the theory case, on who does well where, on drift and cost; any arms side by side; and the first drawing of all.

if (page.widgets.bandit) {
  const kinds = page.widgets.bandit.kinds;
  const ids = () => kinds.flatMap((k) => Object.values(k.arms).flatMap((by) => Object.values(by)));
  const w = new Widget("bandit", render, () => {
    const rows = groupsOf(ids()).map((g) => {
      const s = g.values.worst_gap;
      return [...ofGroup(g), g.reveal, g.delta, s.mean, s.low, s.high, s.boot_low, s.boot_high, g.delta / 2];
    });
    return { columns: [...OF_GROUP, "reveal", "delta", "worst_gap", "low", "high", "bootstrap_low", "bootstrap_high", "half_delta"], rows };
  });
  w.choice("kind", "The world is", kinds.map((k) => ({ key: k.key, label: k.label, missing: !Object.keys(k.arms).length })));
  w.choice("algorithm", "Algorithm", algorithmChoices((key) => kinds.some((k) => k.arms[key])));
  const deltas = w.spec.deltas;
  w.slider("delta", "Disagreement δ between the two worlds", () => deltas.length, deltas.length - 1, (i) => `δ = ${deltas[i]}`, ["Smaller disagreement", "Larger disagreement"]);
  const hue = { hidden: "c1", memory: "c3", revealed: "c2" }, symbol = { hidden: "square", memory: "diamond", revealed: "circle" };
  function render() {
    const { kind, algorithm, delta } = w.state, d = deltas[delta];
    const traces = [
      { x: [0, 1], y: [0, 0.5], mode: "lines", name: "floor δ/2 for a hidden world", line: { color: ink("ink"), dash: "dash", width: 1.8 }, hoverinfo: "skip" },
    ];
    for (const k of [...kinds.filter((x) => x.key !== kind), kinds.find((x) => x.key === kind)]) {
      const by = k?.arms[algorithm];
      if (!by) continue;
      const list = deltas.filter((x) => by[x] !== undefined), found = list.map((x) => group(by[x]).values.worst_gap), on = k.key === kind;
      traces.push({
        x: list, y: found.map((s) => s.mean), mode: "lines+markers", name: k.label, opacity: on ? 1 : 0.35, line: { color: ink(hue[k.key] ?? "c6"), width: on ? 2.5 : 1.5 },
        marker: { color: ink(hue[k.key] ?? "c6"), symbol: symbol[k.key] ?? "x", opacity: 1, size: list.map((x) => (on && x === d ? 14 : 8)) }, ...(on ? whiskers(found) : {}),
        hoverinfo: "text", text: found.map((s, i) => `${k.label}, δ = ${list[i]}<br>worst-client gap ${gap(s)}`),
      });
    }
    const least = deltas.map((x) => group(kinds.find((k) => k.key === kind)?.arms[algorithm]?.[x])?.floorGap);
    if (kind !== "hidden" && least.some((v) => v > 0)) traces.push({
      x: deltas.filter((x, i) => known(least[i])), y: least.filter(known), mode: "lines", name: `floor: ${kinds.find((k) => k.key === kind).label}`, hoverinfo: "skip",
      line: { color: ink(hue[kind] ?? "c6"), dash: "dashdot", width: 1.6 },
    });
    const here = (key) => group(kinds.find((k) => k.key === key)?.arms[algorithm]?.[d])?.values.worst_gap;
    const top = Math.max(0.7, ...groupsOf(ids()).map((g) => g.values.worst_gap?.high ?? g.values.worst_gap?.mean ?? 0)) * 1.04;
    draw("plot-bandit", traces, {
      height: narrow() ? 340 : 390, xaxis: { title: { text: "disagreement δ" }, range: [-0.04, 1.05], tickvals: deltas }, yaxis: { range: [-0.02, top], title: { text: narrow() ? "" : "worst client's gap to its own best" } },
      shapes: [
        { type: "path", path: "M 0,0 L 1,0.5 L 1,0 Z", layer: "below", fillcolor: fade(ink("soft"), 0.12), line: { width: 0 } },
        { type: "line", x0: d, x1: d, y0: 0, y1: 1, yref: "paper", line: { color: ink("soft"), width: 1, dash: "dot" } },
      ],
      annotations: narrow() ? [] : [{ x: 0.8, y: 0.1, text: "no shared policy without memory or cue<br>can be in the shaded region", showarrow: false, font: { size: 12, color: ink("soft") } }],
    });
    w.say(tiles([
      ["floor δ/2", (d / 2).toFixed(2), "limit"], ...kinds.filter((k) => Object.keys(k.arms).length).map((k) => [k.label, gap(here(k.key)), k.key === kind ? "on" : ""]),
    ]), sentence("The gap averaged over the two clients is δ/2 for every policy that has neither memory nor a cue, good or bad, so only the worst client's gap is evidence."));
  }
  function gap(s) {
    return s && known(s.mean) ? s.mean.toFixed(3) + (known(s.low) ? ` [${s.low.toFixed(3)}, ${s.high.toFixed(3)}]` : "") : "not measured";
  }
}

// Select options for arms, in blocks by family.
const armOptions = (ids) => ids.map((id) => ({ key: String(id), label: group(id).title, block: page.families[group(id).family] ?? group(id).family }));

if (page.widgets.matrix) {
  const w = new Widget("matrix", render, () => {
    const rows = [];
    for (const id of page.widgets.matrix.groups) for (const m of group(id).matrices) {
      m.clients.forEach((c, i) => m.worlds.forEach((x, j) => rows.push([...ofGroup(group(id)), m.seed, c, x, m.rates[i]?.[j]])));
    }
    return { columns: [...OF_GROUP, "seed", "client", "world", "success"], rows };
  });
  const armInput = w.select("arm", "Arm", armOptions(w.spec.groups));
  const seedInput = w.select("seed", "Seed", [{ key: "mean", label: "mean over seeds" }, ...new Set(w.spec.groups.flatMap((id) => group(id).matrices.map((m) => String(m.seed))))].map((s) => (s.key ? s : { key: s, label: `seed ${s}` })).filter((o, i, all) => all.findIndex((x) => x.key === o.key) === i));
  function render() {
    const g = group(w.state.arm);
    for (const option of seedInput.options) option.disabled = !g.matrices.some((m) => String(m.seed) === option.value);
    let m = g.matrices.find((x) => String(x.seed) === w.state.seed);
    if (!m) { m = g.matrices[0]; w.state.seed = seedInput.value = String(m.seed); }
    const family = m.worlds.every((x) => x.startsWith(m.worlds[0].split(":")[0] + ":")) ? m.worlds[0].split(":")[0] : "";
    const short = (world) => (family ? world.slice(family.length + 1) : world).replaceAll("_", " ");
    const head = element("tr", {}, element("th", { textContent: family ? family.replaceAll("_", " ") : "client", scope: "col" }), ...m.worlds.map((x) => element("th", { textContent: short(x), scope: "col" })));
    const body = m.clients.map((c, i) => element("tr", {}, element("th", { textContent: c, scope: "row" }), ...m.worlds.map((x, j) => {
      const value = m.rates[i]?.[j];
      const cell = element("td", { textContent: known(value) ? `${Math.round(100 * value)}` : "–", title: `${c} in ${x}: ${percent(value)}` });
      if (known(value)) {
        cell.style.background = `color-mix(in srgb, var(--heat) ${Math.round(12 + 88 * value)}%, var(--card))`;
        cell.classList.toggle("strong", value > 0.5);
      }
      if (m.homes && m.homes[i] === x) cell.classList.add("home");
      return cell;
    })));
    document.getElementById("plot-matrix").replaceChildren(element("table", { className: "heat" }, element("thead", {}, head), element("tbody", {}, ...body)));
    w.say(sentence(`${g.title}: success in percent of the parameters in the row, in the world of the column; a frame marks a client's own world.`));
  }
}

if (page.widgets.drift) {
  const MEASURES = {
    cosine: ["cosine", "mean cosine between the changes of two clients: 1 is the same direction, 0 unrelated, below 0 opposed"],
    norm: ["step size", "mean norm of a client's change of the parameters in a round"],
    divergence: ["policy divergence", "how far the clients' policies differ on the same prompts, in nats (mean KL to their mixture)"],
    shift: ["policy shift", "how far a client's policy moved in the round on the same prompts, in nats (mean KL to the round's start)"],
    clip_fraction: ["clipped share", "share of tokens whose step the algorithm clipped"],
  };
  const rows = page.widgets.drift.rows;
  const ids = () => rows.flatMap((r) => Object.values(r.arms));
  const beside = rows.filter((r) => Object.keys(r.arms).length > 1);
  const has = (key) => groupsOf(ids()).some((g) => g.drift.metrics[key]);
  const w = new Widget("drift", render, () => {
    const out = [];
    for (const g of groupsOf(ids())) for (const [metric, m] of Object.entries(g.drift.metrics)) {
      g.drift.round.forEach((r, i) => known(m.mean[i]) && out.push([...ofGroup(g), metric, r, m.mean[i], m.low[i], m.high[i]]));
    }
    return { columns: [...OF_GROUP, "metric", "round", "mean", "low", "high"], rows: out };
  });
  w.select("arm", "Arm", rows.map((r, i) => ({ key: String(i), label: r.label, block: r.block })), String(Math.max(0, rows.findIndex((r) => r === (beside.filter((x) => x.block === page.families.environment).at(-1) ?? beside[0])))));
  w.choice("metric", "Measure", Object.entries(MEASURES).map(([key, [label]]) => ({ key, label, missing: !has(key) })));
  function render() {
    const { arm, metric } = w.state, row = rows[Number(arm)], traces = [], means = [];
    for (const [name, id] of Object.entries(row.arms)) {
      const g = { ...group(id), curve: { ...group(id).drift, episodes: [] } }, m = g.drift.metrics[metric];
      if (!m) continue;
      const color = ink(hueOf[name] ?? "c2");
      const drawn = curve(g, metric, { name: nameOf(name), color, dash: dashOf[name], symbol: symbolOf[name] });
      const text = g.drift.round.map((r, i) => [r, i]).filter(([, i]) => known(m.mean[i])).map(([r, i]) => `${nameOf(name)}, round ${r}: ${m.mean[i].toPrecision(3)}`);
      drawn.at(-1).text = text;
      traces.push(...drawn);
      const finite = m.mean.filter(known);
      means.push([`${nameOf(name)}, mean over rounds`, (finite.reduce((a, b) => a + b, 0) / finite.length).toPrecision(3)]);
    }
    draw("plot-drift", traces, { height: narrow() ? 290 : 340, showlegend: true, xaxis: { title: { text: "round" } }, yaxis: { rangemode: metric === "cosine" ? "normal" : "tozero", tickformat: "~g" } });
    w.say(sentence(`${row.label}: ${MEASURES[metric]?.[1] ?? ""}.`), tiles(means.length ? means : [["this measure", "not measured in this arm"]]));
  }
}

if (page.widgets.cost) {
  const PHASES = [["rollout_seconds", "rollout", "c0"], ["train_seconds", "training", "c1"], ["aggregate_seconds", "averaging", "c2"], ["evaluate_seconds", "evaluation", "c4"], ["other_seconds", "other", "c6"]];
  const families = page.widgets.cost.families;
  const w = new Widget("cost", render, () => {
    const names = [...PHASES.map(([key]) => key), "cpu_seconds", "wall_seconds", "tokens", "bytes"];
    return { columns: [...OF_GROUP, "runs", ...names.map((n) => `${n}_per_run`)], rows: page.groups.map((g) => [...ofGroup(g), g.cost.runs, ...names.map((n) => g.cost[n])]) };
  });
  w.choice("what", "Cost in", [{ key: "time", label: "time by phase" }, { key: "tokens", label: "tokens" }, { key: "bytes", label: "bytes exchanged" }]);
  w.select("family", "Of", [{ key: "all", label: "every part, all runs together" }, ...families.map((f) => ({ key: f.key, label: `${f.label}: per run of an arm` }))], families.length === 1 ? families[0].key : "all");
  function render() {
    const { what, family } = w.state, whole = family === "all";
    const lines = whole
      ? families.map((f) => ({ label: f.label, of: (key) => f.groups.map((id) => (group(id).cost[key] ?? 0) * group(id).cost.runs).reduce((a, b) => a + b, 0) }))
      : families.find((f) => f.key === family).groups.map((id) => ({ label: group(id).title, of: (key) => group(id).cost[key] ?? 0 }));
    const parts = what === "time" ? PHASES : [[what, what === "tokens" ? "tokens read and written" : "bytes exchanged", "c0"]];
    const y = lines.map((l, i) => i);
    const minutes = what === "time" && whole;
    const traces = parts.map(([key, label, hue]) => ({
      type: "bar", orientation: "h", name: label, y, x: lines.map((l) => l.of(key) / (minutes ? 60 : 1)), marker: { color: ink(hue) }, hoverinfo: "text", textposition: "none",
      text: lines.map((l) => `${l.label}<br>${label}: ${amount(what, l.of(key))}`),
    })).filter((t) => t.x.some((v) => v > 0));
    const cut = (text) => { const most = narrow() ? 20 : 44; return text.length > most ? `${text.slice(0, most - 1)}…` : text; };
    draw("plot-cost", traces, {
      height: 100 + 30 * lines.length, barmode: "stack", showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", itemclick: false, itemdoubleclick: false }, xaxis: { title: { text: { time: minutes ? "minutes" : "seconds", tokens: "tokens", bytes: "bytes" }[what] }, tickformat: what === "time" ? "" : "~s" },
      yaxis: { tickvals: y, ticktext: lines.map((l) => cut(l.label)), range: [lines.length - 0.4, -0.6], showgrid: false },
    });
    const sum = (key) => page.groups.map((g) => (g.cost[key] ?? 0) * g.cost.runs).reduce((a, b) => a + b, 0);
    w.say(tiles([
      ["runs", String(page.groups.map((g) => g.cost.runs).reduce((a, b) => a + b, 0))], ["processor time", amount("time", sum("cpu_seconds"))], ["sum of the runs' wall clocks", amount("time", sum("wall_seconds"))],
      ["tokens", amount("tokens", sum("tokens"))], ["bytes exchanged", amount("bytes", sum("bytes"))],
    ]));
  }
  function amount(what, value) {
    if (!value) return "not recorded";
    if (what === "time") return value >= 5400 ? `${(value / 3600).toFixed(1)} h` : value >= 90 ? `${(value / 60).toFixed(1)} min` : `${value.toFixed(1)} s`;
    const unit = value >= 1e9 ? [1e9, "G"] : value >= 1e6 ? [1e6, "M"] : value >= 1e3 ? [1e3, "k"] : [1, ""];
    return `${(value / unit[0]).toFixed(unit[0] > 1 ? 1 : 0)} ${unit[1]}${what === "bytes" ? "B" : ""}`.trim();
  }
}

if (page.widgets.compare) {
  const HUES = ["c0", "c1", "c2", "c3", "c4", "c5", "c7", "c6"], DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "solid", "dash", "dot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon"];
  const w = new Widget("compare", render, () => curveRows(groupsOf([...chosen])));
  const chosen = new Set(w.spec.shown);
  w.choice("metric", "Success on", ["mean_worlds", "worst_world", "control", "train"].map((key) => ({
    key, label: METRICS[key], missing: !w.spec.groups.some((id) => group(id).curve.metrics[key]),
  })));
  const box = element("div", { className: "ticks" });
  let block = null;
  for (const { key, label, block: name } of armOptions(w.spec.groups)) {
    if (name !== block) box.append(element("b", { textContent: name }));
    block = name;
    const input = element("input", { type: "checkbox", value: key, checked: chosen.has(Number(key)) });
    input.addEventListener("change", () => {
      if (input.checked) chosen.add(Number(key));
      else chosen.delete(Number(key));
      if (chosen.size > HUES.length) { chosen.delete(Number(key)); input.checked = false; }
      w.render();
    });
    box.append(element("label", {}, input, ` ${label}`));
  }
  w.controls.append(element("fieldset", { className: "list" }, element("legend", { textContent: `Arms, ${HUES.length} at most` }), box));
  function render() {
    const { metric } = w.state, traces = [], numbers = [];
    [...chosen].forEach((id, i) => {
      const g = group(id);
      traces.push(...curve(g, metric, { name: g.title, color: ink(HUES[i]), dash: DASHES[i], symbol: SYMBOLS[i] }));
      numbers.push([g.title, rate(metric === "train" ? summaryAt(g, "train", Infinity) : g.values[metric])]);
    });
    draw("plot-compare", traces, { height: 360 + 18 * (narrow() ? chosen.size : Math.ceil(chosen.size / 2)), showlegend: true, xaxis: { title: { text: "round" } }, yaxis: { ...rates } });
    w.say(tiles(numbers));
  }
}

// The first drawing, and again when colours or the width change.

for (const widget of widgets.values()) widget.render();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const widget of widgets.values()) widget.render(); });
let wasNarrow = narrow();
addEventListener("resize", () => {
  if (narrow() === wasNarrow) return;
  wasNarrow = narrow();
  for (const widget of widgets.values()) widget.render();
});
