// A terminal for a task of a job: what terminfo's entry xterm-256color lets programs use, on a grid of cells.
//
// Bytes from the job come as binary messages of a WebSocket, keys go back the same way, and a new size of the window
// goes as JSON. The screen is text nodes in spans with classes, so no byte becomes HTML. Nothing that the job writes is
// ever answered: titles, the clipboard and questions to the terminal are ignored.

// --- Cells and colours

const HISTORY_LINES = 1000;
const MAX_MARKS = 8; // combining characters on a cell
const LINES = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"; // the character set for drawing lines, from "`" on
const WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\p{Emoji_Presentation}\u{20000}-\u{3fffd}]/u;
const MARK = /[\p{M}\u200b-\u200f\u2060]/u;
const STYLES = { 1: "bold", 2: "faint", 3: "italic", 4: "under", 7: "inverse", 8: "hidden", 9: "struck" };

// A colour is null for the default, an index of the palette, or [red, green, blue].
function rgb(colour) {
  if (Array.isArray(colour)) return colour;
  if (colour >= 232) return Array(3).fill(8 + 10 * (colour - 232));
  const level = (step) => (step === 0 ? 0 : 55 + 40 * step);
  const cube = colour - 16;
  return [level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)];
}
const isNamed = (colour) => typeof colour === "number" && colour < 16;
const css = (colour) => (colour === null || isNamed(colour) ? "" : `rgb(${rgb(colour).join(" ")})`);
const isLight = (colour) => { const [r, g, b] = rgb(colour); return 299 * r + 587 * g + 114 * b > 128000; };

// How a cell looks: styles and colours of the job, and what the page makes of them.
function look(styles = [], text = null, back = null) {
  const classes = styles.filter((it) => it !== "inverse" && it !== "hidden");
  let [front, behind] = [text, back];
  if (styles.includes("inverse")) {
    if (text === null && back === null) classes.push("inverse");
    [front, behind] = [back, text];
  }
  if (isNamed(front)) classes.push(`t${front}`);
  if (isNamed(behind)) classes.push(`k${behind}`);
  const background = css(behind);
  // The style sheet knows readable pairs for the palette only.
  const color = background && !css(front) ? (isLight(behind) ? "#000" : "#fff") : css(front);
  const isHidden = styles.includes("hidden");
  return { styles, text, back, classes: classes.join(" "), color, background, isHidden, key: `${classes}|${color}|${background}|${isHidden}` };
}
const PLAIN = look();

const emptyLine = (columns, looks) => ({ cells: Array(columns).fill(" "), looks: Array(columns).fill(looks), isNew: true });

// --- The screen: what the job has drawn

class Screen {
  constructor(rows, columns) {
    [this.rows, this.columns] = [rows, columns];
    this.history = []; // lines that left the screen since the last drawing
    this.state = this.ground;
    this.reset();
  }

  reset() {
    this.x = this.y = 0;
    this.wraps = false; // the next character goes to the next line
    this.look = PLAIN;
    this.lines = Array.from({ length: this.rows }, () => emptyLine(this.columns, PLAIN));
    this.main = null; // the main screen while the alternate one is shown
    [this.top, this.bottom] = [0, this.rows - 1];
    this.saved = { x: 0, y: 0, look: PLAIN };
    this.mode = { wrap: true, cursor: true, insert: false, keys: false, bracketed: false };
    this.drawsLines = false;
    this.last = " ";
  }

  resize(rows, columns) {
    // Lines below the cursor go first, so that what the job wrote last stays.
    const fit = (lines, cursor, gone) => {
      for (const line of lines) {
        const more = Math.max(0, columns - line.cells.length);
        line.cells.push(...Array(more).fill(" "));
        line.looks.push(...Array(more).fill(PLAIN));
        line.cells.length = line.looks.length = columns;
        line.isNew = true;
      }
      const surplus = Math.max(0, lines.length - rows);
      const below = Math.min(surplus, lines.length - 1 - cursor);
      lines.length -= below;
      gone.push(...lines.splice(0, surplus - below));
      while (lines.length < rows) lines.push(emptyLine(columns, PLAIN));
      return cursor - (surplus - below);
    };
    this.y = fit(this.lines, this.y, this.main ? [] : this.history);
    if (this.main) this.main.y = fit(this.main.lines, this.main.y, this.history);
    [this.rows, this.columns, this.top, this.bottom] = [rows, columns, 0, rows - 1];
    this.moveTo(this.y, this.x);
  }

  write(text) {
    for (const character of text) {
      const code = character.codePointAt(0);
      if (this.state === this.ground && code >= 32 && (code < 127 || code >= 160)) this.put(character);
      else if (code === 24 || code === 26) this.state = this.ground;
      else if (code === 27) this.state = this.escape;
      else if (this.state === this.string) { if (code === 7) this.state = this.ground; }
      else if (code < 32) this.control(code);
      else this.state(character);
    }
  }

  // -- Parts of sequences: each handles one character and sets the next state.

  ground() {}
  string() {} // titles and the like, up to BEL or the next escape
  charset(character) { this.drawsLines = character === "0"; this.state = this.ground; }
  skip() { this.state = this.ground; }

  escape(character) {
    this.state = this.ground;
    if (character === "[") { this.parameters = ""; this.state = this.sequence; }
    else if ("]PX^_".includes(character)) this.state = this.string;
    else if (character === "(") this.state = this.charset;
    else if (character >= " " && character <= "/") this.state = this.skip;
    else if (character === "7") this.saved = { x: this.x, y: this.y, look: this.look };
    else if (character === "8") this.restore(this.saved);
    else if (character === "E") { this.x = 0; this.feed(); }
    else if (character === "M") this.reverseFeed();
    else if (character === "c") this.reset();
  }

  sequence(character) {
    if (character < "@") { if (this.parameters.length < 256) this.parameters += character; return; }
    this.state = this.ground;
    const [, prefix, list] = /^(\??)([\d;:]*)$/.exec(this.parameters) ?? [];
    if (list === undefined) return;
    const numbers = list.split(";").map((it) => Math.min(parseInt(it, 10) || 0, 9999));
    if (prefix === "") this.command(character, numbers, Math.max(1, numbers[0]));
    else if (character === "h" || character === "l") for (const it of numbers) this.privateMode(it, character === "h");
  }

  command(character, numbers, count) {
    const { x, y, columns } = this;
    const isInRegion = y >= this.top && y <= this.bottom;
    switch (character) {
      case "A": this.moveTo(Math.max(y - count, y >= this.top ? this.top : 0), x); break;
      case "B": this.moveTo(Math.min(y + count, y <= this.bottom ? this.bottom : this.rows - 1), x); break;
      case "C": this.moveTo(y, x + count); break;
      case "D": this.moveTo(y, x - count); break;
      case "G": this.moveTo(y, count - 1); break;
      case "H": case "f": this.moveTo(count - 1, (numbers[1] || 1) - 1); break;
      case "d": this.moveTo(count - 1, x); break;
      case "Z": this.moveTo(y, 8 * (Math.ceil(x / 8) - count)); break;
      case "J": {
        const [first, last] = [[y + 1, this.rows], [0, y], [0, this.rows]][numbers[0]] ?? [0, 0];
        for (let line = first; line < last; line += 1) this.erase(line, 0, columns);
        if (numbers[0] < 2) this.command("K", numbers, count);
        break;
      }
      case "K": this.erase(y, numbers[0] === 0 ? x : 0, numbers[0] === 1 ? x + 1 : columns); break;
      case "X": this.erase(y, x, Math.min(x + count, columns)); break;
      case "@": this.shift(count); break;
      case "P": this.shift(-count); break;
      case "L": if (isInRegion) this.scroll(y, -count); break;
      case "M": if (isInRegion) this.scroll(y, count); break;
      case "S": this.scroll(this.top, count); break;
      case "T": this.scroll(this.top, -count); break;
      case "b": for (let left = Math.min(count, this.rows * columns); left > 0; left -= 1) this.put(this.last); break;
      case "h": case "l": if (numbers.includes(4)) this.mode.insert = character === "h"; break;
      case "m": this.paint(numbers); break;
      case "r": this.margins(count - 1, Math.min(numbers[1] || this.rows, this.rows) - 1); break;
    }
  }

  privateMode(number, on) {
    switch (number) {
      case 1: this.mode.keys = on; break;
      case 7: this.mode.wrap = on; break;
      case 25: this.mode.cursor = on; break;
      case 2004: this.mode.bracketed = on; break;
      case 1049:
        if (on === (this.main !== null)) break;
        if (on) {
          this.main = { lines: this.lines, x: this.x, y: this.y, look: this.look };
          this.lines = Array.from({ length: this.rows }, () => emptyLine(this.columns, PLAIN));
        } else {
          this.lines = this.main.lines;
          for (const line of this.lines) line.isNew = true;
          this.restore(this.main);
          this.main = null;
        }
    }
  }

  // Colours and styles.
  paint(numbers) {
    let { styles, text, back } = this.look;
    const without = (...names) => styles.filter((it) => !names.includes(it));
    for (let at = 0; at < numbers.length; at += 1) {
      const it = numbers[at];
      if (it === 0) [styles, text, back] = [[], null, null];
      else if (STYLES[it]) styles = [...without(STYLES[it]), STYLES[it]];
      else if (it === 22) styles = without("bold", "faint");
      else if (STYLES[it - 20]) styles = without(STYLES[it - 20]);
      else if (it >= 30 && it <= 37) text = it - 30;
      else if (it >= 90 && it <= 97) text = it - 82;
      else if (it === 39) text = null;
      else if (it >= 40 && it <= 47) back = it - 40;
      else if (it >= 100 && it <= 107) back = it - 92;
      else if (it === 49) back = null;
      else if (it === 38 || it === 48) {
        const isIndex = numbers[at + 1] === 5;
        const parts = numbers.slice(at + 2, at + (isIndex ? 3 : 5)).map((part) => Math.min(part, 255));
        at += isIndex ? 2 : 4;
        if (parts.length < (isIndex ? 1 : 3)) continue;
        const colour = isIndex ? parts[0] : parts;
        if (it === 38) text = colour; else back = colour;
      }
    }
    this.look = look(styles, text, back);
  }

  control(code) {
    switch (code) {
      case 8: this.moveTo(this.y, this.x - 1); break;
      case 9: this.moveTo(this.y, 8 * (Math.floor(this.x / 8) + 1)); break;
      case 10: case 11: case 12: this.feed(); break;
      case 13: this.moveTo(this.y, 0); break;
    }
  }

  // -- Changes of the grid

  put(character) {
    if (this.drawsLines && character >= "`" && character <= "~") character = LINES[character.charCodeAt(0) - 96];
    if (character > "\x7f" && MARK.test(character)) return this.mark(character);
    const width = character > "\x7f" && WIDE.test(character) ? 2 : 1;
    if (this.wraps || this.x + width > this.columns) {
      if (this.mode.wrap) { this.x = 0; this.feed(); }
      else this.x = this.columns - width;
      this.wraps = false;
    }
    if (this.mode.insert) this.shift(width);
    const line = this.lines[this.y];
    this.split(line, this.x);
    this.split(line, this.x + width);
    line.cells[this.x] = character;
    line.looks[this.x] = this.look;
    // The right half of a wide character is an empty cell.
    if (width === 2) { line.cells[this.x + 1] = ""; line.looks[this.x + 1] = this.look; }
    line.isNew = true;
    this.last = character;
    this.x += width;
    if (this.x >= this.columns) { this.x = this.columns - 1; this.wraps = true; }
  }

  mark(character) {
    const line = this.lines[this.y];
    let at = this.wraps ? this.x : Math.max(0, this.x - 1);
    if (line.cells[at] === "") at -= 1;
    if (line.cells[at].length <= MAX_MARKS) line.cells[at] += character;
    line.isNew = true;
  }

  // A wide character of which a half is overwritten disappears.
  split(line, at) {
    if (line.cells[at] === "") line.cells[at - 1] = line.cells[at] = " ";
  }

  moveTo(y, x) {
    this.y = Math.min(Math.max(y, 0), this.rows - 1);
    this.x = Math.min(Math.max(x, 0), this.columns - 1);
    this.wraps = false;
  }

  margins(top, bottom) {
    if (top >= bottom) return;
    [this.top, this.bottom] = [top, bottom];
    this.moveTo(0, 0);
  }

  feed() {
    this.wraps = false;
    if (this.y === this.bottom) this.scroll(this.top, 1);
    else if (this.y < this.rows - 1) this.y += 1;
  }

  reverseFeed() {
    this.wraps = false;
    if (this.y === this.top) this.scroll(this.top, -1);
    else if (this.y > 0) this.y -= 1;
  }

  // The look of cells that are cleared.
  blank() {
    return look([], null, this.look.back);
  }

  // Moves the lines from `top` to the end of the scrolling region up, or down if `count` is negative.
  scroll(top, count) {
    const blank = this.blank();
    const [from, to] = count > 0 ? [top, this.bottom] : [this.bottom, top];
    for (let left = Math.min(Math.abs(count), this.bottom - top + 1); left > 0; left -= 1) {
      const [gone] = this.lines.splice(from, 1);
      this.lines.splice(to, 0, emptyLine(this.columns, blank));
      if (from === 0 && count > 0 && !this.main) this.history.push(gone);
    }
    if (this.history.length > HISTORY_LINES) this.history.splice(0, this.history.length - HISTORY_LINES);
    for (const line of this.lines) line.isNew = true;
  }

  erase(y, from, to) {
    const line = this.lines[y];
    this.split(line, from);
    this.split(line, to);
    line.cells.fill(" ", from, to);
    line.looks.fill(this.blank(), from, to);
    line.isNew = true;
    this.wraps = false;
  }

  // Moves the rest of the line to the right, or to the left if `count` is negative.
  shift(count) {
    const line = this.lines[this.y];
    const size = Math.min(Math.abs(count), this.columns - this.x);
    const [drop, add] = count > 0 ? [this.columns - size, this.x] : [this.x, this.columns - size];
    this.split(line, this.x);
    this.split(line, count > 0 ? drop : this.x + size);
    for (const [list, value] of [[line.cells, " "], [line.looks, this.blank()]]) {
      list.splice(drop, size);
      list.splice(add, 0, ...Array(size).fill(value));
    }
    line.isNew = true;
    this.wraps = false;
  }

  restore({ x, y, look: saved }) {
    this.look = saved;
    this.moveTo(y, x);
  }
}

// --- Drawing: one element per line, one span per run of cells that look the same

function draw(line, cursor) {
  const element = document.createElement("span");
  element.className = "l";
  let [run, key, content] = [null, null, ""];
  for (let at = 0; at < line.cells.length; at += 1) {
    const text = line.cells[at];
    if (text === "") continue;
    const [looks, isWide, isCursor] = [line.looks[at], line.cells[at + 1] === "", at === cursor];
    const wanted = `${looks.key}|${isWide ? at : ""}|${isCursor}`;
    if (wanted !== key) {
      if (run) run.textContent = content;
      [key, content] = [wanted, ""];
      run = element.appendChild(document.createElement("span"));
      run.className = `${looks.classes}${isWide ? " wide" : ""}${isCursor ? " cursor" : ""}`;
      run.style.color = looks.color;
      run.style.background = looks.background;
    }
    content += looks.isHidden ? " " : text;
  }
  if (run) run.textContent = content;
  element.append("\n");
  return element;
}

class View {
  constructor(pane) {
    this.pane = pane;
    this.lines = [];
    this.past = 0;
  }

  // The size in cells that fits.
  size() {
    const probe = this.pane.appendChild(document.createElement("span"));
    probe.className = "probe";
    probe.textContent = "M".repeat(20);
    const box = probe.getBoundingClientRect();
    probe.remove();
    const style = getComputedStyle(this.pane);
    const inner = (space, before, after) => space - parseFloat(style[before]) - parseFloat(style[after]);
    const columns = Math.floor(inner(this.pane.clientWidth, "paddingLeft", "paddingRight") / (box.width / 20));
    const rows = Math.floor(inner(this.pane.clientHeight, "paddingTop", "paddingBottom") / box.height);
    return { rows: Math.min(Math.max(rows, 4), 200), columns: Math.min(Math.max(columns, 20), 500) };
  }

  show(screen) {
    const isAtEnd = this.pane.scrollTop + this.pane.clientHeight >= this.pane.scrollHeight - 4;
    for (const line of screen.history.splice(0)) {
      this.pane.insertBefore(draw(line, -1), this.lines[0] ?? null);
      this.past += 1;
    }
    for (; this.past > HISTORY_LINES; this.past -= 1) this.pane.firstElementChild.remove();
    while (this.lines.length > screen.rows) this.lines.pop().remove();
    screen.lines.forEach((line, y) => {
      const cursor = screen.mode.cursor && y === screen.y ? screen.x : -1;
      if (!line.isNew && cursor < 0 && this.cursorLine !== y) return;
      const element = draw(line, cursor);
      if (this.lines[y]) this.lines[y].replaceWith(element);
      else this.pane.append(element);
      this.lines[y] = element;
      line.isNew = false;
    });
    this.cursorLine = screen.y;
    if (isAtEnd) this.pane.scrollTop = this.pane.scrollHeight;
  }
}

// --- Keys

const CURSOR_KEYS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const FUNCTION_KEYS = { F1: "P", F2: "Q", F3: "R", F4: "S" };
const EDIT_KEYS = { Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24 };

// The bytes of a key as text, or null if the browser handles the key.
function bytesOf(event, mode) {
  const { key, ctrlKey, altKey, shiftKey, metaKey } = event;
  const isGraph = event.getModifierState("AltGraph");
  if (metaKey || (ctrlKey && shiftKey && key.length === 1) || (shiftKey && key === "Insert")) return null;
  const modifiers = 1 + shiftKey + 2 * altKey + 4 * ctrlKey;
  const final = CURSOR_KEYS[key] ?? FUNCTION_KEYS[key];
  if (final && modifiers > 1) return `\x1b[1;${modifiers}${final}`;
  if (final) return (FUNCTION_KEYS[key] || mode.keys ? "\x1bO" : "\x1b[") + final;
  if (EDIT_KEYS[key]) return `\x1b[${EDIT_KEYS[key]}${modifiers > 1 ? `;${modifiers}` : ""}~`;
  const escape = altKey && !isGraph ? "\x1b" : "";
  switch (key) {
    case "Enter": return `${escape}\r`;
    case "Tab": return shiftKey ? "\x1b[Z" : "\t";
    case "Backspace": return `${escape}\x7f`;
    case "Escape": return "\x1b";
  }
  if ([...key].length !== 1) return null;
  if (!ctrlKey || isGraph) return escape + key;
  if (key === " ") return `${escape}\0`;
  if (key === "/") return `${escape}\x1f`;
  const code = key.toUpperCase().charCodeAt(0);
  return code >= 64 && code < 96 ? escape + String.fromCharCode(code & 31) : null;
}

// --- The page

const MESSAGE_BYTES = 16384;
const frame = document.getElementById("terminal");
const keys = frame.querySelector("textarea");
const detach = document.getElementById("detach");
const again = document.getElementById("again");
const state = document.getElementById("terminal-state");
frame.hidden = false;
const view = new View(frame.querySelector(".screen"));
const decoder = new TextDecoder();
const encoder = new TextEncoder();
let { rows, columns } = view.size();
const screen = new Screen(rows, columns);
const socket = new WebSocket(`${frame.dataset.socket}?rows=${rows}&columns=${columns}`);
socket.binaryType = "arraybuffer";
let isWaiting = false; // for the next drawing
let wasOpen = false;

function send(text) {
  if (socket.readyState !== WebSocket.OPEN) return;
  const bytes = encoder.encode(text);
  for (let at = 0; at < bytes.length; at += MESSAGE_BYTES) socket.send(bytes.subarray(at, at + MESSAGE_BYTES));
}

// Returns whether the key went to the job.
function press(event) {
  const text = bytesOf(event, screen.mode);
  if (text === null) return false;
  view.pane.scrollTop = view.pane.scrollHeight;
  send(text);
  return true;
}

function redraw() {
  if (isWaiting) return;
  isWaiting = true;
  const now = () => { isWaiting = false; view.show(screen); };
  // A hidden page draws nothing by itself, and must not collect lines without bound.
  if (document.hidden) setTimeout(now, 500);
  else requestAnimationFrame(now);
}

function fit() {
  const size = view.size();
  if (size.rows === rows && size.columns === columns) return;
  ({ rows, columns } = size);
  screen.resize(rows, columns);
  redraw();
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ rows, columns }));
}

socket.addEventListener("open", () => {
  wasOpen = true;
  state.textContent = "Attached.";
  fit();
  keys.focus({ preventScroll: true });
});
socket.addEventListener("message", (event) => {
  if (typeof event.data === "string") return;
  screen.write(decoder.decode(event.data, { stream: true }));
  redraw();
});
socket.addEventListener("close", () => {
  const why = isAsked ? "Detached. The job continues." : "Detached. The task or your session has ended, or the connection has closed.";
  state.textContent = wasOpen ? why : "The head did not open the terminal. Attach again to see the state of the task.";
  const hadFocus = document.activeElement === keys || document.activeElement === detach;
  [keys.disabled, detach.hidden, again.hidden, frame.querySelector(".touch-keys").hidden] = [true, true, false, true];
  if (hadFocus) again.focus();
});
let isAsked = false; // whether the reader detached
detach.addEventListener("click", () => { isAsked = true; socket.close(); });
again.addEventListener("click", () => location.reload());
addEventListener("pagehide", () => socket.close());
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
new ResizeObserver(fit).observe(view.pane);

keys.addEventListener("keydown", (event) => {
  if (event.isComposing || event.keyCode === 229) return;
  if (event.key === "Escape" && event.shiftKey) {
    event.preventDefault();
    detach.focus();
    return;
  }
  if (event.shiftKey && (event.key === "PageUp" || event.key === "PageDown")) {
    event.preventDefault();
    view.pane.scrollBy(0, (event.key === "PageUp" ? -0.9 : 0.9) * view.pane.clientHeight);
    return;
  }
  if (press(event)) event.preventDefault();
});
// Keys that keyboards on screens lack.
for (const button of frame.querySelectorAll("[data-key]")) {
  button.addEventListener("click", () => {
    press(new KeyboardEvent("keydown", { key: button.dataset.key, ctrlKey: "control" in button.dataset }));
    keys.focus({ preventScroll: true });
  });
}
// Text of keyboards on screens and of input methods comes without keys.
function take() {
  send(keys.value.replaceAll("\n", "\r"));
  keys.value = "";
}
keys.addEventListener("input", (event) => { if (!event.isComposing) take(); });
keys.addEventListener("compositionend", take);
keys.addEventListener("paste", (event) => {
  event.preventDefault();
  const text = event.clipboardData.getData("text").replaceAll("\x1b", "").replace(/\r?\n/g, "\r");
  send(screen.mode.bracketed ? `\x1b[200~${text}\x1b[201~` : text);
});
// A click goes on to the keys, but the selection of text stays.
view.pane.addEventListener("mouseup", () => { if (document.getSelection().isCollapsed) keys.focus({ preventScroll: true }); });
keys.addEventListener("focus", () => view.pane.classList.add("active"));
keys.addEventListener("blur", () => view.pane.classList.remove("active"));
redraw();
