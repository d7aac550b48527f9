// Widgets that follow training: alike clients, task splits, the ladder of worlds, escape hatches.

const MODES = {
  federated: { label: "federated", hue: "c0", symbol: "circle", dash: "solid" },
  centralized: { label: "centralized", hue: "c1", symbol: "square", dash: "dash" },
  local: { label: "local", hue: "c6", symbol: "diamond", dash: "dot" },
};

if (page.widgets.uniform) {
  const w = new Widget("uniform", render, () => curveRows(groupsOf(page.widgets.uniform.worlds.map((x) => Object.values(x.algorithms)).flat(2).map((a) => a.group))));
  const worlds = w.spec.worlds;
  w.choice("world", "World", worlds.map((x) => ({ key: x.key, label: x.label, missing: !Object.keys(x.algorithms).length })));
  w.choice("algorithm", "Algorithm", algorithmChoices((key) => worlds.some((x) => x.algorithms[key])));
  w.choice("metric", "Success on", [{ key: "mean_worlds", label: "held-out tasks" }, { key: "train", label: "training episodes" }],
    followed(...groupsOf(worlds.map((x) => Object.values(x.algorithms)).flat(2).map((a) => a.group))));
  const world = () => worlds.find((x) => x.key === w.state.world);
  const arms = () => world()?.algorithms[w.state.algorithm] ?? [];
  const rounds = () => Math.max(1, ...arms().map((a) => lastRound(group(a.group), w.state.metric)));
  const scrub = w.slider("round", "Drag through training", () => rounds() + 1, rounds(), (i) => `round ${i} of ${rounds()}`, ["Round before", "Next round"]);
  const play = element("button", { type: "button", className: "step play", title: "Play training", ariaLabel: "Play training", textContent: "▶" });
  scrub.line.prepend(play);
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶"; play.ariaLabel = play.title = "Play training"; };
  play.addEventListener("click", () => {
    if (timer) return stop();
    play.textContent = "❚❚"; play.ariaLabel = play.title = "Pause";
    if (w.state.round >= rounds()) w.state.round = 0;
    w.render();
    timer = setInterval(() => { w.state.round += 1; w.render(); if (w.state.round >= rounds()) stop(); }, Math.max(80, 4000 / rounds()));
  });
  let clickable = false;
  function render() {
    const { round, metric, algorithm } = w.state;
    const traces = [], text = [], crowd = arms().filter((a) => a.mode === "local").length > 1;
    for (const a of arms()) {
      const g = group(a.group), mode = MODES[a.mode] ?? MODES.local;
      const style = { name: a.label, color: ink(mode.hue), dash: mode.dash, symbol: mode.symbol };
      traces.push(...curve(g, metric, { ...style, faint: true }), ...curve(g, metric, { ...style, upTo: round, band: a.mode !== "local" || !crowd }));
      text.push([a.label, rate(summaryAt(g, metric, round)), a.mode]);
    }
    const height = narrow() ? 320 : 380;
    draw("plot-uniform", traces, {
      height, xaxis: { title: { text: "round" }, range: [-0.3, rounds() + 0.5] }, yaxis: { ...rates, title: { text: narrow() ? "" : "success" } },
      shapes: [{ type: "line", x0: round, x1: round, y0: 0, y1: 1, yref: "paper", line: { color: ink("soft"), width: 1, dash: "dot" } }],
    });
    if (!clickable) {
      document.getElementById("plot-uniform").on("plotly_click", (event) => { w.state.round = Math.round(event.points[0].x); w.render(); });
      clickable = true;
    }
    const some = arms().map((a) => summaryAt(group(a.group), metric, round)).filter(Boolean);
    const spent = [...new Set(some.map((s) => s.episodes).filter(known))];
    const told = (world()?.differences[algorithm] ?? []).map((d) => `${d.label} ${points(d)}`);
    const notes = told.length ? [sentence(`At the end, seed by seed: ${told.join("; ")}.`)] : [];
    const when = `After round ${round}${spent.length ? ` (${spent.map((e) => e.toLocaleString("en")).join(" or ")} episodes)` : ""}:`;
    w.say(sentence(when), tiles(text), ...notes, ...(world()?.published ?? []).map(sentence));
  }
}

if (page.widgets.task) {
  const ids = page.widgets.task.axes.map((a) => [Object.values(a.arms.near ?? {}), Object.values(a.arms.extreme ?? {})]);
  const w = new Widget("task", render, () => together(valueRows(groupsOf(ids)), curveRows(groupsOf(ids))));
  const axes = w.spec.axes;
  w.choice("axis", "What clients' tasks differ in", axes.map((a) => ({ key: a.key, label: a.label, missing: !a.arms.near && !a.arms.extreme })));
  w.choice("split", "Split", [{ key: "near", label: "near-uniform" }, { key: "extreme", label: "extreme" }], "extreme");
  w.choice("algorithm", "Algorithm", algorithmChoices((key) => axes.some((a) => a.arms.near?.[key] !== undefined || a.arms.extreme?.[key] !== undefined)));
  function render() {
    const { axis: key, split, algorithm } = w.state;
    const axis = axes.find((a) => a.key === key);
    const other = split === "near" ? "extreme" : "near";
    const label = { near: "near-uniform", extreme: "extreme" };
    const style = (name) => ({ name: label[name], color: ink(name === "near" ? "c0" : "c1"), symbol: name === "near" ? "circle" : "square", dash: name === "near" ? "solid" : "dash" });
    const found = (name) => group(axis?.arms[name]?.[algorithm]);
    const traces = [], metric = followed(found("near"), found("extreme"));
    for (const name of [other, split]) if (found(name)) traces.push(...curve(found(name), metric, { ...style(name), faint: name === other, legend: true }));
    draw("plot-task", traces, {
      height: narrow() ? 300 : 340, showlegend: true, xaxis: { title: { text: metric === "train" ? "round, training episodes" : "round" }, range: [-0.3, Math.max(1, lastRound(found("near"), metric), lastRound(found("extreme"), metric)) + 0.5] },
      yaxis: { ...rates },
    });
    const shown = axes.filter((a) => a.differences[algorithm]);
    const y = shown.map((a, i) => i), differences = shown.map((a) => a.differences[algorithm]);
    const edge = Math.max(0.12, ...differences.flatMap((d) => [Math.abs(d.low ?? d.mean), Math.abs(d.high ?? d.mean)])) * 1.1;
    draw("plot-task-differences", [{
      x: differences.map((d) => d.mean), y, mode: "markers", marker: { size: shown.map((a) => (a.key === key ? 13 : 9)), color: shown.map((a) => ink(a.key === key ? "c1" : "soft")), symbol: "square" },
      ...whiskers(differences, "error_x"), hoverinfo: "text", text: differences.map((d, i) => `${shown[i].label}: ${points(d)}`),
    }], {
      height: narrow() ? 60 + 44 * shown.length : 340, showlegend: false,
      xaxis: { title: { text: "extreme minus near-uniform" }, range: [-edge, edge], tickformat: "+.0%", nticks: 6 },
      yaxis: { tickvals: y, ticktext: shown.map((a) => a.label), range: [shown.length - 0.4, -0.6], showgrid: false },
      shapes: [
        { type: "rect", layer: "below", x0: -0.05, x1: 0.05, y0: 0, y1: 1, yref: "paper", fillcolor: fade(ink("c2"), 0.14), line: { width: 0 } },
        { type: "line", x0: 0, x1: 0, y0: 0, y1: 1, yref: "paper", line: { color: ink("soft"), width: 1 } },
      ],
    });
    const d = axis?.differences[algorithm];
    w.say(
      tiles([[`${axis?.label ?? ""}, near-uniform`, rate(found("near")?.values.mean_worlds)], [`${axis?.label ?? ""}, extreme`, rate(found("extreme")?.values.mean_worlds)],
        ["extreme minus near-uniform", points(d)],
        ...(known(found("extreme")?.bound) ? [["bound factor of the worst client", found("extreme").bound.toFixed(2)]] : [])]),
      ...(axis?.published ?? []).map(sentence),
    );
  }
}

const KINDS = {
  floor: "floor: worlds contradict each other, no shared policy can pass the limit", slack: "slack: one shared policy could serve all, nothing forces a gap",
  none: "no limit of its own",
};

if (page.widgets.ladder) {
  const all = () => page.widgets.ladder.ladders.flatMap((l) => l.rungs);
  const ids = () => all().flatMap((r) => [Object.values(r.arms), r.extra.map((e) => e.group)]);
  const w = new Widget("ladder", render, () => together(valueRows(groupsOf(ids())), curveRows(groupsOf(ids()))));
  w.choice("ladder", "Worlds", w.spec.ladders.map((l) => ({ key: l.key, label: l.label })));
  w.choice("algorithm", "Algorithm", algorithmChoices((key) => all().some((r) => r.arms[key] !== undefined)));
  w.choice("metric", "Number", ["mean_worlds", "worst_world", "control", "after_local", "alone"].map((key) => ({
    key, label: METRICS[key], missing: !all().some((r) => Object.values(r.arms).some((id) => group(id).values[key])),
  })));
  const rungs = () => w.spec.ladders.find((l) => l.key === w.state.ladder).rungs;
  const label = (i) => `step ${i + 1} of ${rungs().length}: ${rungs()[i].label}`;
  w.slider("rung", "Severity", () => rungs().length, rungs().length - 1, label, ["Easier rung", "Harder rung"]);
  function render() {
    const { algorithm, metric, rung } = w.state;
    const list = rungs(), here = list[rung];
    const limited = metric === "mean_worlds" || metric === "worst_world";
    const y = list.map((r, i) => i), of = (r, a) => group(r.arms[a])?.values[metric];
    const limits = list.map((r) => (limited ? r.limit : null));
    const see = list.map((r, i) => (i <= rung ? 1 : 0.25));
    const traces = [{
      type: "bar", orientation: "h", y, base: limits.map((l) => l ?? 1), x: limits.map((l, i) => (known(l) && list[i].kind === "floor" ? 1 - l : 0)), name: "out of reach for any shared policy",
      marker: { color: fade(ink("soft"), 0.1), pattern: { shape: "/", fgcolor: fade(ink("soft"), 0.55), bgcolor: "rgba(0,0,0,0)", size: 7, solidity: 0.18 } }, hoverinfo: "skip", width: 0.86,
      showlegend: limited && limits.some(known),
    }];
    const values = list.map((r) => of(r, algorithm));
    traces.push({
      type: "bar", orientation: "h", y, x: values.map((v) => v?.mean ?? null), name: `${nameOf(algorithm)}, ${METRICS[metric]}`, width: 0.56,
      marker: { color: ink(hueOf[algorithm] ?? "c2"), opacity: see }, ...whiskers(values.map((v, i) => (i <= rung ? v : null)), "error_x"), hoverinfo: "text", textposition: "none",
      text: list.map((r, i) => `${r.label}<br>${nameOf(algorithm)}: ${rate(values[i])}<br>${r.kind === "floor" ? "limit" : "a shared script"}: ${percent(r.limit)}`),
    });
    traces[1].error_x.color = ink("ink");
    for (const name of page.algorithms.filter((a) => a !== algorithm && list.some((r) => of(r, a)))) {
      const others = list.map((r) => of(r, name));
      traces.push({
        x: others.map((v) => v?.mean ?? null), y, mode: "markers", name: nameOf(name), hoverinfo: "text", text: list.map((r, i) => `${r.label}<br>${nameOf(name)}: ${rate(others[i])}`),
        marker: { symbol: "diamond", size: 9, color: ink("card"), opacity: see, line: { width: 2, color: ink(hueOf[name] ?? "c2") } },
      });
    }
    if (limited && limits.some(known)) traces.push({
      x: limits.flatMap((l, i) => (list[i].kind === "floor" ? [l, l, null] : [null, null, null])), y: y.flatMap((i) => [i - 0.43, i + 0.43, null]), mode: "lines", name: "best any shared policy could do", hoverinfo: "skip",
      line: { color: ink("ink"), dash: "dash", width: 1.6 }, connectgaps: false,
    });
    const rows = list.map((r) => lines(r.label)), tall = 16 + (narrow() ? 14 : 15) * Math.max(...rows.map((r) => r.length));
    draw("plot-ladder", traces, {
      height: Math.max(narrow() ? 0 : 350, 110 + Math.max(narrow() ? 40 : 38, tall) * list.length), barmode: "overlay", xaxis: { tickformat: ".0%", range: [0, 1.01], dtick: 0.25 },
      yaxis: { tickvals: y, tickfont: { size: narrow() ? 11 : 12 }, ticktext: rows.map((r, i) => (i === rung ? `<b>${r.join("<br>")}</b>` : r.join("<br>"))), range: [list.length - 0.45, -0.55], showgrid: false },
      margin: { l: 60, r: 14, t: 6, b: 34 },
    });
    const most = followed(...Object.values(here.arms).map(group));
    const track = most === "mean_worlds" && ["worst_world", "control"].includes(metric) ? metric : most;
    const curves = [], longest = Math.max(1, ...Object.values(here.arms).map((id) => lastRound(group(id), track)));
    for (const name of page.algorithms.filter((a) => here.arms[a] !== undefined)) curves.push(...curve(group(here.arms[name]), track, {
      name: nameOf(name), color: ink(hueOf[name] ?? "c2"), dash: dashOf[name], symbol: symbolOf[name], faint: name !== algorithm, legend: true,
    }));
    if (limited && track !== "train" && known(here.limit) && here.kind === "floor") curves.push(limitLine(here.limit, 0, longest, "limit"));
    draw("plot-ladder-curve", curves, {
      height: narrow() ? 270 : 330, showlegend: true, xaxis: { title: { text: `round, ${METRICS[track]}` }, range: [-0.3, longest + 0.5] }, yaxis: { ...rates },
    });
    document.getElementById("rung-title").textContent = here.label;
    const g = group(here.arms[algorithm]), v = g?.values ?? {};
    const kind = g?.kind ?? here.kind;
    w.say(
      element("p", {}, element("b", { textContent: here.label }), " ", element("span", { className: `chip ${kind}`, textContent: KINDS[kind] ?? kind })),
      tiles([
        ["mean over clients' own worlds", rate(v.mean_worlds), metric === "mean_worlds" ? "on" : ""], ["worst world", rate(v.worst_world), metric === "worst_world" ? "on" : ""],
        ["unperturbed control world", rate(v.control), metric === "control" ? "on" : ""], [here.kind === "floor" ? "best any shared policy could do" : "a shared script at this skill", percent(here.limit), "limit"],
        ["each client alone in its world", rate(v.alone), metric === "alone" ? "on" : ""], ["clients after local training", rate(v.after_local), metric === "after_local" ? "on" : ""],
      ]),
      ...(here.note && known(here.limit) ? [sentence(`${here.kind === "floor" ? "The limit" : "The script"}: ${here.note}.`)] : []),
      ...here.differences.map((d) => sentence(`${d.label}: ${points(d)}${d.paired ? ", paired by seed" : ""}.`)),
      ...(here.extra.length ? [sentence(`Controls, mean over clients' own worlds: ${here.extra.map((e) => `${e.label} ${rate(group(e.group).values.mean_worlds)}`).join("; ")}.`)] : []),
      ...here.published.map(sentence),
    );
  }
}

if (page.widgets.hatches) {
  const hatches = page.widgets.hatches.hatches;
  const ids = () => hatches.flatMap((h) => [Object.values(h.hatch), Object.values(h.twin)]);
  const w = new Widget("hatches", render, () => together(valueRows(groupsOf(ids())), curveRows(groupsOf(ids()))));
  w.choice("hatch", "Escape hatch", hatches.map((h) => ({ key: h.key, label: h.label })));
  w.choice("algorithm", "Algorithm", algorithmChoices((key) => hatches.some((h) => h.hatch[key] !== undefined)));
  function render() {
    const { algorithm } = w.state, chosen = hatches.find((h) => h.key === w.state.hatch);
    const shown = hatches.filter((h) => h.hatch[algorithm] !== undefined);
    const y = shown.map((h, i) => i), of = (h, side) => group(h[side][algorithm])?.values.mean_worlds;
    const size = shown.map((h) => (h === chosen ? 13 : 9));
    const dots = (side, name, hue, symbol) => ({
      x: shown.map((h) => of(h, side)?.mean ?? null), y, mode: "markers", name, marker: { size, color: ink(hue), symbol, opacity: 1 }, ...whiskers(shown.map((h) => of(h, side)), "error_x"),
      hoverinfo: "text", text: shown.map((h) => `${h.label}, ${name}: ${rate(of(h, side))}`),
    });
    const link = { x: shown.flatMap((h) => [of(h, "twin")?.mean ?? null, of(h, "hatch")?.mean ?? null, null]), y: y.flatMap((i) => [i, i, null]), mode: "lines", showlegend: false, hoverinfo: "skip", line: { color: ink("line"), width: 4 } };
    const limits = shown.map((h) => group(h.twin[algorithm])?.floor);
    const traces = [link, dots("twin", "hidden twin", "c1", "square"), dots("hatch", "with the hatch", "c0", "circle")];
    if (limits.some(known)) traces.push({
      x: limits.flatMap((l) => [l, l, null]), y: y.flatMap((i) => [i - 0.3, i + 0.3, null]), mode: "lines", name: "limit of the hidden twin", hoverinfo: "skip", line: { color: ink("ink"), dash: "dash", width: 1.6 },
    });
    draw("plot-hatches", traces, {
      height: 120 + 52 * shown.length, xaxis: { tickformat: ".0%", range: [-0.02, 1.03], dtick: 0.25 },
      yaxis: { tickvals: y, ticktext: shown.map((h) => (h === chosen ? `<b>${lines(h.label).join("<br>")}</b>` : lines(h.label).join("<br>"))), range: [shown.length - 0.4, -0.6], showgrid: false },
    });
    const a = group(chosen?.hatch[algorithm]), b = group(chosen?.twin[algorithm]), curves = [];
    const track = followed(a, b);
    if (b) curves.push(...curve(b, track, { name: "hidden twin", color: ink("c1"), symbol: "square", dash: "dash" }));
    if (a) curves.push(...curve(a, track, { name: "with the hatch", color: ink("c0") }));
    const longest = Math.max(1, lastRound(a, track), lastRound(b, track));
    if (b && track !== "train" && known(b.floor)) curves.push(limitLine(b.floor, 0, longest, "limit of the hidden twin"));
    draw("plot-hatches-curve", curves, { height: 330, showlegend: true, xaxis: { title: { text: `round, ${METRICS[track]}` }, range: [-0.3, longest + 0.5] }, yaxis: { ...rates } });
    w.say(
      element("p", {}, element("b", { textContent: chosen?.label ?? "" }), ` ${chosen?.caption ?? ""}`),
      tiles([["hidden twin", rate(b?.values.mean_worlds)], ["with the hatch", rate(a?.values.mean_worlds)], ["difference", points(chosen?.differences[algorithm])]]),
    );
  }
}
