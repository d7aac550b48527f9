"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const [client, world, round, outcome, text] = ["client", "world", "round", "outcome", "text"].map(byId);
  const worlds = new Set(data.episodes.map((e) => e.variant));
  let shown = [];
  let current = -1;

  /** An element with a class and children; strings become text nodes, never markup. */
  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children.filter((c) => c !== null).map((c) => (typeof c === "object" ? c : String(c))));
    return element;
  }
  const has = (value) => value !== null && value !== undefined && value !== "";
  const fixed = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "?");
  const plain = (value) => (typeof value === "number" ? String(Math.round(value * 1000) / 1000) : String(value ?? ""));

  function options(select, values) {
    const unique = [...new Set(values.map(plain))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    for (const value of ["", ...unique]) select.append(new Option(value === "" ? "all" : value, value));
  }

  function matches(episode) {
    if (client.value && plain(episode.client) !== client.value) return false;
    if (world.value && plain(episode.variant) !== world.value) return false;
    if (round.value && plain(episode.round) !== round.value) return false;
    if (outcome.value && Boolean(episode.success) !== (outcome.value === "yes")) return false;
    const wanted = text.value.trim().toLowerCase();
    return !wanted || JSON.stringify(Object.values(episode)).toLowerCase().includes(JSON.stringify(wanted).slice(1, -1));
  }

  function list() {
    shown = data.episodes.map((episode, index) => [episode, index]).filter(([episode]) => matches(episode));
    byId("count").textContent = `${shown.length} of ${data.episodes.length} episodes`
      + (data.total > data.episodes.length ? `, an even selection of ${data.total} (fedagent view --limit shows more)` : "")
      + `; ${shown.filter(([e]) => e.success).length} successful`;
    byId("list").replaceChildren(...shown.map(([episode, index], place) => {
      const button = make("button", "",
        make("span", episode.success ? "mark yes" : "mark", episode.success ? "✓" : "·"),
        make("span", "", `${plain(episode.client) || "?"}, round ${plain(episode.round) || "?"}`),
        make("span", "", fixed(episode.score, 2)),
        make("span", "task", episode.instruction || episode.task_id || ""),
        worlds.size > 1 ? make("span", "task world", `world ${plain(episode.variant) || "?"}`) : null);
      button.type = "button";
      button.dataset.index = index;
      button.title = `task ${episode.task_id ?? "?"}, ${episode.turns.length} turns`;
      button.addEventListener("click", () => open(place));
      return button;
    }));
    if (!shown.length) {
      byId("list").append(make("p", "empty", "No episode matches."));
      byId("episode").replaceChildren();
      current = -1;
    }
  }

  function block(title, body, name) {
    return has(body) ? [make("h4", "", title), make("pre", name, body)] : [];
  }

  function turn(step, index) {
    const invalid = step.valid === false;
    const tokens = step.n_response || 0;
    const chips = [
      invalid ? make("span", "chip no", "invalid action") : null,
      typeof step.reward === "number" ? make("span", "chip", `reward ${plain(step.reward)}`) : null,
      typeof step.logprob === "number" ? make("span", "chip", `log-prob ${fixed(step.logprob, 2)}`
        + (tokens ? ` (mean token ${Math.round(100 * Math.exp(step.logprob / tokens))}%)` : "")) : null,
      has(step.n_prompt) ? make("span", "chip", `${step.n_prompt} + ${tokens} tokens`) : null,
    ];
    const card = make("div", invalid ? "card turn invalid" : "card turn",
      make("h3", "", `Turn ${index + 1}`, make("span", "action", step.action ?? ""), ...chips),
      ...block("Observation", step.observation), ...block("Response", step.response, "response"));
    if (has(step.prompt)) card.append(make("details", "", make("summary", "", "Prompt as the model read it"), make("pre", "", step.prompt)));
    return card;
  }

  function steps() {
    const back = make("button", "", "← previous");
    const on = make("button", "", "next →");
    back.type = on.type = "button";
    back.disabled = current <= 0;
    on.disabled = current >= shown.length - 1;
    back.addEventListener("click", () => open(current - 1));
    on.addEventListener("click", () => open(current + 1));
    return make("div", "steps", back, on);
  }

  function open(place) {
    if (place < 0 || place >= shown.length) return;
    current = place;
    const [episode, index] = shown[place];
    for (const button of byId("list").children) {
      button.setAttribute("aria-current", String(Number(button.dataset.index) === index));
      if (Number(button.dataset.index) === index) button.scrollIntoView({ block: "nearest" });
    }
    const chips = [
      make("span", episode.success ? "chip yes" : "chip no", episode.success ? "success" : "no success"),
      ...[["score", fixed(episode.score, 2)], ["return", plain(episode.ret)], [episode.client === "heldout" ? "tasks" : "client", episode.client === "heldout" ? "held out" : episode.client], ["round", episode.round],
        episode.client === "heldout" ? ["decoding", episode.epoch ? "greedy" : "sampled"] : ["local epoch", episode.epoch], ["world", episode.variant], ["adapter", episode.adapter], ["ended", episode.stop],
        ["retries", episode.retries || null], ["turns", episode.turns.length]]
        .filter(([, value]) => has(value)).map(([name, value]) => make("span", "chip", `${name} ${value}`)),
    ];
    const head = make("div", "card", make("h2", "", episode.instruction || `Task ${episode.task_id ?? "?"}`),
      make("p", "task-text", `task ${episode.task_id ?? "?"}`), make("p", "chips", ...chips));
    const last = has(episode.final_observation)
      ? [make("div", "card turn", make("h3", "", "After the last turn"), make("pre", "", episode.final_observation))] : [];
    byId("episode").replaceChildren(steps(), head, ...episode.turns.map(turn), ...last);
    history.replaceState(null, "", `#${index}`);
  }

  function filter() {
    list();
    open(0);
  }

  if (data.title) byId("title").textContent = `${data.title}: episodes`;
  options(client, data.episodes.map((e) => e.client));
  options(world, data.episodes.map((e) => e.variant));
  byId("worlds").hidden = worlds.size < 2;
  options(round, data.episodes.map((e) => e.round));
  for (const control of [client, world, round, outcome, text]) control.addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight") open(current + 1);
    if (event.key === "ArrowLeft") open(current - 1);
  });
  list();
  const asked = shown.findIndex(([, index]) => index === Number(location.hash.slice(1)));
  open(location.hash && asked >= 0 ? asked : 0);
})();
