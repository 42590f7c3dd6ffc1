// Live updates of pages. Pages work without it: a reload shows the same.
//
// The server says that something changed (`/live`). The page then loads itself again and replaces the parts that are
// marked with `data-live`. XMLHttpRequest parses the answer into an inert document, so no text becomes HTML here.

const topics = (document.body.dataset.topics ?? "").split(" ").filter(Boolean);
const banner = document.getElementById("banner");
const RETRY_MS = 4000;

let seen = null; // counters of the changes that the page shows
let latest = null; // counters of the newest changes
let isLoading = false;
let awaySince = null;
let hidden = document.hidden;

// --- Messages in the banner

function say(text, label, act) {
  delete banner.dataset.stays;
  if (banner.dataset.text === text) return;
  banner.dataset.text = text;
  banner.replaceChildren(document.createTextNode(text + " "));
  if (label) {
    const button = document.createElement("button");
    button.className = "button";
    button.textContent = label;
    button.addEventListener("click", act);
    banner.append(button);
  }
  banner.hidden = false;
}

// Says something that the page will not say again. It stays while parts of the page are replaced.
function tell(text) {
  say(text, "Close", () => { delete banner.dataset.stays; hush(); });
  banner.dataset.stays = "";
}

function hush() {
  if (banner.hidden || "stays" in banner.dataset) return;
  delete banner.dataset.text;
  banner.hidden = true;
  banner.replaceChildren();
}

// --- Loading

function load(url) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", url);
    request.responseType = "document";
    request.timeout = 20000;
    request.onload = () => resolve(request);
    request.onerror = request.ontimeout = () => reject(new Error("no answer"));
    request.send();
  });
}

function pending() {
  if (!latest || !seen) return 0;
  return topics.reduce((sum, topic) => sum + Math.max(0, (latest[topic] ?? 0) - (seen[topic] ?? 0)), 0);
}

// Whether text in the element is selected.
function isSelected(element) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode);
}

// While someone reads or chooses, the page must not move under them.
function isInUse() {
  if (isSelected(document.getElementById("main"))) return true;
  if (document.activeElement?.closest("[data-live]")) return true;
  if (document.querySelector("[data-live] input:checked, [data-live] details.confirm[open]")) return true;
  return window.scrollY > 200;
}

// Loads the page again and replaces its parts, or only those that a selector names.
async function refresh(only = null) {
  if (isLoading) return;
  isLoading = true;
  const shown = latest;
  try {
    const answer = await load(location.href);
    if (answer.status === 401 || answer.status === 403) {
      stop();
      say("Your session has ended. What you see is old.", "Reload", () => location.reload());
      return;
    }
    if (!answer.response || answer.status >= 500) throw new Error(`status ${answer.status}`);
    if (!only || awaySince) hush();
    awaySince = null;
    if (answer.status === 200) replaceParts(answer.response, only ?? "[data-live]");
    if (!only) seen = shown ?? seen;
  } catch {
    lost();
  } finally {
    isLoading = false;
  }
  // There may have been changes while the page was loading.
  if (!awaySince && pending() > 0) changed(latest);
}

function lost() {
  awaySince ??= new Date();
  say(`The head has not answered since ${awaySince.toLocaleTimeString()}. What you see is old; the page tries again.`);
  setTimeout(() => refresh(), RETRY_MS * (1 + Math.random()));
}

// --- Times: the server knows only the zone of its own machine

const inZone = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const ofZone = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    const zone = ofZone.formatToParts(at).find((part) => part.type === "timeZoneName").value;
    const local = `${inZone.format(at)} ${zone}`;
    const utc = `${time.dateTime.replace("T", " ").replace("Z", "")} UTC`;
    if (time.textContent === time.title) time.textContent = local;
    time.title = zone === "UTC" ? utc : `${local}, ${utc}`;
  }
}
localise(document);

// --- Replacing parts

const path = (root, element) => {
  const steps = [];
  for (let at = element; at && at !== root; at = at.parentElement) steps.unshift([...at.parentElement.children].indexOf(at));
  return steps;
};
const follow = (root, steps) => steps.reduce((at, step) => at?.children[step], root);
// An element is the same if it has the same id, or the same name and value, or else the same place.
const twin = (root, element, steps) =>
  (element.id && root.querySelector(`#${CSS.escape(element.id)}`)) ||
  (element.name && [...root.querySelectorAll(`[name="${CSS.escape(element.name)}"]`)].find((it) => it.value === element.value)) ||
  (!element.id && !element.name ? follow(root, steps) : null);

function replaceParts(other, selector) {
  for (const part of document.querySelectorAll(selector)) {
    const found = other.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
    if (!found) continue;
    const fresh = document.importNode(found, true);
    localise(fresh);
    const open = [...part.querySelectorAll("details[open]")];
    for (const element of open) twin(fresh, element, path(part, element))?.setAttribute("open", "");
    if (fresh.isEqualNode(part)) continue;
    const checked = [...part.querySelectorAll("input:checked")].map((element) => twin(fresh, element, path(part, element)));
    const scrolled = [...part.querySelectorAll(".scroll")].map((element) => [path(part, element), element.scrollLeft, element.scrollTop]);
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const toFocus = focused && twin(fresh, focused, path(part, focused));
    part.replaceWith(fresh);
    for (const element of checked) if (element) element.checked = true;
    for (const [steps, left, top] of scrolled) follow(fresh, steps)?.scrollTo(left, top);
    toFocus?.focus({ preventScroll: true });
  }
  offerAll();
  offerNotice();
}

function changed(counters) {
  latest = counters;
  // A new count began, for example after a restart of the head.
  if (seen && seen.from !== counters.from) seen = { ...counters, jobs: counters.jobs - 1, nodes: counters.nodes - 1 };
  seen ??= counters;
  const count = pending();
  if (count === 0 || topics.length === 0) return;
  if (isInUse()) {
    say(count === 1 ? "1 change." : `${count} changes.`, "Show", () => { hush(); refresh(); });
    return;
  }
  refresh();
}

// --- One connection per browser

const channel = "BroadcastChannel" in window ? new BroadcastChannel("hostler-live") : null;
let release = null; // gives the lock to another tab
let source = null;

function connect() {
  source = new EventSource("/live");
  source.addEventListener("changed", (event) => {
    const counters = JSON.parse(event.data);
    channel?.postMessage(counters);
    changed(counters);
  });
  source.addEventListener("error", () => {
    // The browser tries again by itself unless the server refused the request.
    if (source?.readyState === EventSource.CLOSED) refresh();
  });
  source.addEventListener("open", () => { if (awaySince) refresh(); });
}

function start() {
  if (source || release || topics.length === 0) return;
  if (navigator.locks && channel) {
    const abort = new AbortController();
    release = () => abort.abort();
    navigator.locks.request("hostler-live", { signal: abort.signal }, () => {
      connect();
      return new Promise((resolve) => { release = resolve; });
    }).catch(() => {});
  } else {
    connect();
  }
}

function stop() {
  source?.close();
  source = null;
  release?.();
  release = null;
}

channel?.addEventListener("message", (event) => { if (!hidden) changed(event.data); });
document.addEventListener("visibilitychange", () => {
  if (document.hidden === hidden) return;
  hidden = document.hidden;
  if (hidden) {
    stop();
  } else {
    start();
    if (topics.length > 0 && !isInUse()) refresh();
  }
});
addEventListener("pagehide", stop);
addEventListener("pageshow", (event) => { if (event.persisted) { start(); refresh(); } });
if (!hidden) start();
// The page may have changed between its making and the first event.
if (topics.length > 0) setTimeout(() => { if (!hidden && !isInUse()) refresh(); }, 1500);

// --- Every `data-watch` seconds, the title and the icon say what has happened, also in the background and while the page is in use

const told = '[data-live="title"], [data-live="icon"], [data-live="notice"]';
let toldAt = Date.now();
setInterval(() => {
  if (awaySince || !(hidden || pending() > 0) || !(Date.now() - toldAt >= document.body.dataset.watch * 1000)) return;
  toldAt = Date.now();
  refresh(told);
}, 5000);

// --- Notification of a job's end, if the reader asks for it and the page stays open

const noticeOf = (button) => `notify-${button.dataset.notify}`;
function offerNotice() {
  const button = document.querySelector("[data-notify]");
  if (!button || !("Notification" in window)) return;
  const isAsked = sessionStorage.getItem(noticeOf(button)) !== null;
  const isOver = button.dataset.over === "yes";
  button.hidden = isOver;
  button.disabled = isAsked;
  if (isAsked) button.textContent = "You will be notified";
  if (!isAsked || !isOver) return;
  sessionStorage.removeItem(noticeOf(button));
  // Browsers on phones show notifications only of installed applications.
  try { new Notification(document.title); } catch { tell(document.title); }
}
offerNotice();
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-notify]");
  if (!button) return;
  if ((await Notification.requestPermission()) === "granted") sessionStorage.setItem(noticeOf(button), "");
  else tell("The browser does not allow notifications of this page.");
  offerNotice();
  button.blur();
});

// --- Charts that grow: the page is loaded again after `data-every` seconds

// Whoever reads values or selects text keeps them. Otherwise charts grow also where the page is scrolled.
function isChartRead() {
  const chart = document.querySelector("[data-every]");
  return isSelected(chart) || chart.querySelector("details[open]") !== null || chart.contains(document.activeElement);
}

async function growCharts() {
  const every = Number(document.querySelector("[data-every]")?.dataset.every);
  if (every > 0 && !hidden && !awaySince && !isChartRead()) await refresh(onlyCharts);
  setTimeout(growCharts, (every > 0 ? every : 30) * 1000);
}
// The time at the end of the page belongs to the charts if nothing else on the page is live.
const onlyCharts = `[data-live="usage"]${document.querySelectorAll("main [data-live]").length === 1 ? ', [data-live="as-of"]' : ""}`;
if (document.querySelector('[data-live="usage"]')) setTimeout(growCharts, 3000);

// --- Filters: they act at once, and are folded where the screen is narrow

const narrow = matchMedia("(max-width: 40rem)");
function fold() {
  for (const filters of document.querySelectorAll("[data-fold]")) filters.open = !narrow.matches;
}
fold();
narrow.addEventListener("change", fold);
document.addEventListener("change", (event) => event.target.form?.matches("[data-at-once]") && event.target.form.requestSubmit());

// --- Check boxes: all of a table

function offerAll() {
  for (const all of document.querySelectorAll("input[data-all]")) all.hidden = false;
}
offerAll();
document.addEventListener("change", (event) => {
  const name = event.target.dataset?.all;
  if (name) for (const box of event.target.form.querySelectorAll(`input[name="${CSS.escape(name)}"]`)) box.checked = event.target.checked;
});

// --- Output that grows: `data-follow` is the address of the next lines, `data-most` the number of lines to keep

const only = document.getElementById("only");
function filterLines() {
  const wanted = only?.value.toLowerCase() ?? "";
  for (const line of document.querySelectorAll(".log .l")) line.hidden = !line.textContent.toLowerCase().includes(wanted);
}
if (only) {
  only.parentElement.hidden = false;
  only.addEventListener("input", filterLines);
}

const MAX_LINES = 2000;
const findLog = () => document.querySelector("[data-follow]");

function isAtEnd() {
  return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 40;
}

// Adds lines to the log. Returns how many there are.
function addLines(log, more) {
  const isWholePage = !log.dataset.most;
  const stays = isWholePage && isAtEnd();
  const lines = [...more.children].map((line) => document.importNode(line, true));
  // A line without an end is shown again with its rest.
  if (lines.length > 0 && log.dataset.open === "yes") log.lastElementChild?.remove();
  log.append(...lines);
  if (lines.length > 0) log.dataset.open = more.dataset.open;
  const most = Number(log.dataset.most ?? MAX_LINES);
  while (log.childElementCount > most) log.firstElementChild.remove();
  log.dataset.follow = more.dataset.more;
  if (only?.value) filterLines();
  if (stays && lines.length > 0) window.scrollTo({ top: document.documentElement.scrollHeight });
  return lines.length;
}

async function grow(wait) {
  const log = findLog();
  // A page about a job has a log once the job has written something.
  if (hidden || !log || isSelected(log)) return void setTimeout(() => grow(1000), 1000);
  let next = 5000;
  try {
    const answer = await load(log.dataset.follow);
    const more = answer.response?.querySelector("[data-more]");
    if (answer.status === 200 && more && log.isConnected) {
      const count = addLines(log, more);
      if (more.dataset.over === "yes") {
        document.getElementById("end")?.replaceChildren("The task has ended.");
        log.removeAttribute("data-follow");
      }
      next = count > 0 ? 1000 : Math.min(wait * 1.5, 5000);
    }
  } catch {
    // Tries again below.
  }
  setTimeout(() => grow(next), next);
}
if (findLog() || document.querySelector('[data-live="last"]')) setTimeout(() => grow(1000), 500);
