// The page *Submit*: uploads a chosen folder or archive before the form is sent, and says when the job would start.
//
// Files are split into chunks, which the head names by their BLAKE3 hash. Chunks that the head has are not sent. So an
// upload that broke continues where it stopped, also after the page was loaded again, and a folder that did not change
// is not sent at all.

const form = document.getElementById("submit");
const folder = document.getElementById("folder");
const archive = document.getElementById("archive");
const chosen = document.getElementById("chosen");
const problem = document.getElementById("problem");
const buttons = form.querySelectorAll("button");

const CHUNK = 1 << 20; // bytes of a chunk at most
const REQUEST = 4 << 20; // bytes of a request at most
const MANY = 5000; // chunks of a request at most
const RETRY_MS = 3000;
const TIMEOUT_MS = 300000;

// --- BLAKE3

const IV = Int32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
const ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const ROUNDS = [[...ORDER.keys()]];
while (ROUNDS.length < 7) ROUNDS.push(ORDER.map((at) => ROUNDS.at(-1)[at]));
const WORDS = Uint8Array.from(ROUNDS.flat());
const [CHUNK_START, CHUNK_END, PARENT, ROOT] = [1, 2, 4, 8];

const v = new Int32Array(16);
function mix(a, b, c, d, x, y) {
  v[a] = v[a] + v[b] + x;
  let it = v[d] ^ v[a];
  v[d] = (it >>> 16) | (it << 16);
  v[c] += v[d];
  it = v[b] ^ v[c];
  v[b] = (it >>> 12) | (it << 20);
  v[a] = v[a] + v[b] + y;
  it = v[d] ^ v[a];
  v[d] = (it >>> 8) | (it << 24);
  v[c] += v[d];
  it = v[b] ^ v[c];
  v[b] = (it >>> 7) | (it << 25);
}

// Mixes the block of 16 words at `at` into the chaining value.
function compress(value, words, at, counter, length, flags) {
  v.set(value);
  v.set(IV.subarray(0, 4), 8);
  v[12] = counter;
  v[13] = 0;
  v[14] = length;
  v[15] = flags;
  for (let i = 0; i < WORDS.length; i += 16) {
    mix(0, 4, 8, 12, words[at + WORDS[i]], words[at + WORDS[i + 1]]);
    mix(1, 5, 9, 13, words[at + WORDS[i + 2]], words[at + WORDS[i + 3]]);
    mix(2, 6, 10, 14, words[at + WORDS[i + 4]], words[at + WORDS[i + 5]]);
    mix(3, 7, 11, 15, words[at + WORDS[i + 6]], words[at + WORDS[i + 7]]);
    mix(0, 5, 10, 15, words[at + WORDS[i + 8]], words[at + WORDS[i + 9]]);
    mix(1, 6, 11, 12, words[at + WORDS[i + 10]], words[at + WORDS[i + 11]]);
    mix(2, 7, 8, 13, words[at + WORDS[i + 12]], words[at + WORDS[i + 13]]);
    mix(3, 4, 9, 14, words[at + WORDS[i + 14]], words[at + WORDS[i + 15]]);
  }
  for (let i = 0; i < 8; i++) value[i] = v[i] ^ v[i + 8];
  return value;
}

// The chaining value of a part of the content. `start` is a multiple of 1024.
function tree(words, start, length, root) {
  if (length > 1024) {
    let left = 1024;
    while (left * 2 < length) left *= 2;
    const block = new Int32Array(16);
    block.set(tree(words, start, left, 0));
    block.set(tree(words, start + left, length - left, 0), 8);
    return compress(IV.slice(), block, 0, 0, 64, PARENT | root);
  }
  const value = IV.slice();
  for (let at = 0; at === 0 || at < length; at += 64) {
    const isLast = at + 64 >= length;
    const flags = (at === 0 ? CHUNK_START : 0) | (isLast ? CHUNK_END | root : 0);
    compress(value, words, (start + at) / 4, start / 1024, Math.min(64, length - at), flags);
  }
  return value;
}

function blake3(bytes) {
  const padded = new Uint8Array(Math.max(64, Math.ceil(bytes.length / 64) * 64));
  padded.set(bytes);
  return new Uint8Array(tree(new Int32Array(padded.buffer), 0, bytes.length, ROOT).buffer);
}

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// --- Sources: lists of files with `path`, `modified`, and `stream()` or the `target` of a link

const text = (bytes) => new TextDecoder().decode(bytes);

// What `hostler submit` leaves out by default. `environments` are the folders of virtual environments.
function isLeftOut(path, environments) {
  const names = path.split("/");
  return names.some((name, at) =>
    name === ".git" || name === ".hostler" || name === ".hostler-partial" ||
    (at < names.length - 1 && (name === "__pycache__" || name === "node_modules" || environments.has(names.slice(0, at + 1).join("/")))));
}

async function* filesOf(list) {
  const files = [...list].map((file) => ({
    path: file.webkitRelativePath.split("/").slice(1).join("/"),
    modified: file.lastModified,
    size: file.size,
    stream: () => file.stream(),
  }));
  const markers = files.filter((it) => /\/(pyvenv\.cfg|\.hostler-results)$/.test(it.path));
  const environments = new Set(markers.map((it) => it.path.slice(0, it.path.lastIndexOf("/"))));
  yield* files.filter((it) => !isLeftOut(it.path, environments));
}

// Reads exact numbers of bytes from a stream.
function exactly(stream) {
  const reader = stream.getReader();
  let rest = new Uint8Array();
  return {
    // At most `most` bytes; none at the end.
    async some(most) {
      while (rest.length === 0) {
        const { done, value } = await reader.read();
        if (done) return rest;
        rest = value;
      }
      const part = rest.subarray(0, most);
      rest = rest.subarray(part.length);
      return part;
    },
    async all(length) {
      const bytes = new Uint8Array(length);
      for (let at = 0; at < length; ) {
        const part = await this.some(length - at);
        if (part.length === 0) throw new Error("The archive ends too early.");
        bytes.set(part, at);
        at += part.length;
      }
      return bytes;
    },
    async skip(length) {
      while (length > 0) {
        const part = await this.some(length);
        if (part.length === 0) throw new Error("The archive ends too early.");
        length -= part.length;
      }
    },
  };
}

async function* tarOf(stream) {
  const input = exactly(stream);
  let long = {};
  for (;;) {
    const header = await input.all(512);
    if (header.every((byte) => byte === 0)) return;
    const field = (from, to) => text(header.subarray(from, to)).split("\0")[0];
    const number = (from, to) => parseInt(field(from, to).trim() || "0", 8);
    // Large sizes are binary.
    const plain = header[124] & 0x80 ? header.subarray(128, 136).reduce((sum, byte) => sum * 256 + byte, 0) : number(124, 136);
    const kind = field(156, 157);
    const size = Number(("xgLK".includes(kind) && kind ? null : long.size) ?? plain);
    if (!(size >= 0) || !(number(148, 156) >= 0)) throw new Error("The archive is no zip, tar or tar.gz file, or it is damaged.");
    const padding = (512 - (size % 512)) % 512;
    if (kind === "x" || kind === "L" || kind === "K") {
      const content = await input.all(size);
      await input.skip(padding);
      if (kind === "L") long.path = text(content).split("\0")[0];
      if (kind === "K") long.linkpath = text(content).split("\0")[0];
      for (let at = 0; kind === "x" && at < content.length; ) {
        const length = parseInt(text(content.subarray(at, at + 20)), 10);
        if (!(length > 0)) throw new Error("The archive is damaged.");
        const [key, value] = /^\d+ ([^=]*)=([^]*)\n$/.exec(text(content.subarray(at, at + length)))?.slice(1) ?? [];
        if (key) long[key] = value;
        at += length;
      }
      continue;
    }
    const prefix = field(257, 262) === "ustar" ? field(345, 500) : "";
    const path = (long.path ?? (prefix ? `${prefix}/${field(0, 100)}` : field(0, 100))).replace(/^(\.\/)+/, "");
    const entry = { path, modified: number(136, 148) * 1000, runs: (number(100, 108) & 0o111) !== 0 };
    const target = long.linkpath ?? field(157, 257);
    if (kind !== "g") long = {};
    if (kind === "" || kind === "0" || kind === "7") {
      let left = size;
      const pull = async (out) => {
        const part = left > 0 ? await input.some(left) : null;
        if (!part) return out.close();
        if (part.length === 0) throw new Error("The archive ends too early.");
        left -= part.length;
        out.enqueue(part);
      };
      yield { ...entry, stream: () => new ReadableStream({ pull }, { highWaterMark: 0 }) };
      await input.skip(left);
    } else {
      await input.skip(size);
      if (kind === "2") yield { ...entry, target };
      else if (kind !== "5" && kind !== "g") throw new Error(`The archive has an entry that is no file, folder or symbolic link: ${path}`);
    }
    await input.skip(padding);
  }
}

async function* zipOf(file) {
  const read = async (from, to) => new DataView(await file.slice(from, to).arrayBuffer());
  const from = Math.max(0, file.size - 65557);
  const tail = await read(from, file.size);
  let end = tail.byteLength - 22;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new Error("The zip file is damaged: it has no directory.");
  const [count, size, start] = [tail.getUint16(end + 10, true), tail.getUint32(end + 12, true), tail.getUint32(end + 16, true)];
  if (count === 0xffff || start === 0xffffffff) throw new Error("The zip file is too large to be read here; use .tar.gz.");
  const directory = await read(start, start + size);
  for (let at = 0, n = 0; n < count; n++) {
    const u16 = (offset) => directory.getUint16(at + offset, true);
    const u32 = (offset) => directory.getUint32(at + offset, true);
    if (u32(0) !== 0x02014b50) throw new Error("The zip file is damaged.");
    const path = text(new Uint8Array(directory.buffer, at + 46, u16(28)));
    const [flags, method, packed, plain, attributes, offset] = [u16(8), u16(10), u32(20), u32(24), u32(38), u32(42)];
    at += 46 + u16(28) + u16(30) + u16(32);
    if (path.endsWith("/")) continue;
    if (flags & 1) throw new Error(`The zip file is encrypted: ${path}`);
    if (method !== 0 && method !== 8) throw new Error(`The zip file uses a compression that browsers cannot read: ${path}`);
    if (packed === 0xffffffff || plain === 0xffffffff) throw new Error(`A file is too large to be read from a zip file; use .tar.gz: ${path}`);
    const local = await read(offset, offset + 30);
    const data = offset + 30 + local.getUint16(26, true) + local.getUint16(28, true);
    const content = file.slice(data, data + packed);
    const stream = () => (method === 8 ? content.stream().pipeThrough(new DecompressionStream("deflate-raw")) : content.stream());
    const isLink = ((attributes >>> 16) & 0o170000) === 0o120000;
    if (isLink) yield { path, modified: file.lastModified, target: await new Response(stream()).text() };
    else yield { path, modified: file.lastModified, size: plain, runs: ((attributes >>> 16) & 0o111) !== 0, stream };
  }
}

async function* archiveOf(file) {
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  if (first === 0x50 && second === 0x4b) yield* zipOf(file);
  else if (first === 0x1f && second === 0x8b) yield* tarOf(file.stream().pipeThrough(new DecompressionStream("gzip")));
  else yield* tarOf(file.stream());
}

// --- Upload

// The content of a stream in chunks.
async function* chunksOf(stream) {
  const input = exactly(stream);
  let buffer = new Uint8Array(CHUNK);
  let used = 0;
  for (;;) {
    const part = await input.some(CHUNK - used);
    buffer.set(part, used);
    used += part.length;
    if (used === CHUNK || (part.length === 0 && used > 0)) {
      yield used === CHUNK ? buffer : buffer.slice(0, used);
      buffer = new Uint8Array(CHUNK);
      used = 0;
    }
    if (part.length === 0) return;
  }
}

// Whether the file begins like a program of Linux or a script.
const isProgram = (bytes) => text(bytes.subarray(0, 2)) === "#!" || hex(bytes.subarray(0, 4)) === "7f454c46";

// Sends a request. A connection that breaks is no failure: it tries again until the head answers.
async function send(path, body, say) {
  for (;;) {
    try {
      const headers = { "hostler-form-token": form.elements.token.value };
      const answer = await fetch(path, { method: "POST", body, headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (answer.ok) return answer;
      if (answer.status === 403 && await renewToken()) continue;
      const words = await answer.text();
      // 429: other requests of the user have to end first.
      if ((answer.status < 500 && answer.status !== 429) || answer.status === 507) {
        let message = words;
        try { const { message: why, hints } = JSON.parse(words); message = [why, ...hints].join("; "); } catch { /* The answer is plain text. */ }
        throw Object.assign(new Error(message), { isFinal: true, status: answer.status });
      }
    } catch (error) {
      if (error.isFinal) throw error;
    }
    say("The head does not answer; the upload continues as soon as it does.");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

// A head that has restarted knows only the tokens of new pages. Returns whether there is a new one.
function renewToken() {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("GET", "/submit");
    request.responseType = "document";
    request.timeout = 20000;
    request.onload = () => {
      const fresh = request.response?.querySelector("#submit [name=token]")?.value;
      const who = (page) => page?.querySelector(".who")?.textContent;
      // Somebody else may have signed in meanwhile.
      const isNew = Boolean(fresh) && fresh !== form.elements.token.value && who(request.response) === who(document);
      if (isNew) for (const field of document.querySelectorAll("input[name=token]")) field.value = fresh;
      resolve(isNew);
    };
    request.onerror = request.ontimeout = () => resolve(false);
    request.send();
  });
}

// Sends those of the chunks that the head lacks. Returns how many bytes that were.
async function sendChunks(chunks, say) {
  const asked = JSON.stringify({ digests: [...chunks.keys()] });
  const { digests } = await (await send("/submit/missing", asked, say)).json();
  if (digests.length === 0) return 0;
  const pack = digests.flatMap((digest) => {
    const { name, bytes } = chunks.get(digest);
    const head = new DataView(new ArrayBuffer(5)); // the length, and a zero: not compressed
    head.setUint32(0, bytes.length + 1, true);
    return [name, head, bytes];
  });
  const body = new Blob(pack);
  await send("/submit/chunks", body, say);
  return body.size;
}

const files = (count) => `${count} file${count === 1 ? "" : "s"}`;

// How many files there are, and their size.
async function measure(entries) {
  let [count, bytes] = [0, 0];
  for await (const { size } of entries) { count++; bytes += size; }
  return { count, bytes };
}

// Uploads all files. Returns the hash of the folder. The size of an archive's content is not known before its end.
async function upload(entries, all, report) {
  let items = [];
  let batch = new Map();
  const done = { files: 0, bytes: 0, sent: 0 };
  let size = 0;
  let progress = "";
  const trouble = (words) => report(`${progress} ${words}`.trim());
  const flush = async () => {
    if (batch.size > 0) done.sent += await sendChunks(batch, trouble);
    batch = new Map();
    size = 0;
    progress = all
      ? `${inWords(done.bytes)} of ${inWords(all.bytes)} read, ${inWords(done.sent)} sent; ${done.files} of ${files(all.count)}.`
      : `${files(done.files)}, ${inWords(done.bytes)} read, ${inWords(done.sent)} sent.`;
    report(progress);
  };
  for await (const { path, modified, runs, target, size: expected, stream } of entries) {
    const item = { path, modified, runs: runs ?? false, target, chunks: [] };
    for await (const bytes of stream ? chunksOf(stream()) : []) {
      if (item.chunks.length === 0 && runs === undefined) item.runs = isProgram(bytes);
      const name = blake3(bytes);
      const digest = hex(name);
      item.chunks.push([digest, bytes.length]);
      done.bytes += bytes.length;
      if (!batch.has(digest)) size += bytes.length;
      batch.set(digest, { name, bytes });
      if (size >= REQUEST || batch.size >= MANY) await flush();
    }
    const found = item.chunks.reduce((sum, [, length]) => sum + length, 0);
    if (expected !== undefined && found !== expected) throw new Error(`This file is damaged, or it has changed: ${path}`);
    done.files++;
    items.push(item);
  }
  await flush();
  if (items.length === 0) throw new Error("There is no file to upload.");
  // An archive often has one folder, in which everything is.
  const top = `${items[0].path.split("/")[0]}/`;
  if (archive.files.length > 0 && !["/", "./", "../"].includes(top) && items.every((it) => it.path.startsWith(top))) {
    for (const item of items) item.path = item.path.slice(top.length);
  }
  items = items.filter((it) => !isLeftOut(it.path, new Set()));
  return (await send("/submit/folder", JSON.stringify(items), trouble)).text();
}

function inWords(bytes) {
  const units = ["B", "K", "M", "G", "T"];
  let at = 0;
  for (; bytes >= 1024 && at < units.length - 1; at++) bytes /= 1024;
  return `${at === 0 ? bytes : bytes.toFixed(1)}${units[at]}`;
}

const say = (words) => { if (chosen.textContent !== words) chosen.textContent = words; };
const show = (error) => { problem.textContent = error.message; problem.hidden = false; };

const nameOfChosen = () =>
  archive.files[0]?.name.replace(/\.(zip|tar|tgz|tar\.gz)$/, "") ?? folder.files[0]?.webkitRelativePath.split("/")[0];

for (const input of [folder, archive]) {
  input.addEventListener("change", async () => {
    const other = input === folder ? archive : folder;
    if (input.files.length > 0) other.value = "";
    form.elements.snapshot.value = "";
    form.querySelector("[name=source][value=folder]").checked = true;
    const { count, bytes } = await measure(input === archive ? input.files : filesOf(input.files));
    say(count === 0 ? "" : input === archive ? `${nameOfChosen()}: an archive of ${inWords(bytes)}.` : `${nameOfChosen()}: ${files(count)}, ${inWords(bytes)}.`);
  });
}

let isUploading = false;
addEventListener("beforeunload", (event) => { if (isUploading) event.preventDefault(); });

form.addEventListener("submit", async (event) => {
  problem.hidden = true;
  if (event.submitter?.name === "try") {
    event.preventDefault();
    estimate();
    return;
  }
  const isChosen = folder.files.length > 0 || archive.files.length > 0;
  if (form.elements.source.value !== "folder" || form.elements.snapshot.value || !isChosen) return;
  event.preventDefault();
  for (const button of buttons) button.disabled = true;
  isUploading = true;
  try {
    const all = archive.files.length > 0 ? null : await measure(filesOf(folder.files));
    for (let tries = 3; !form.elements.snapshot.value; tries--) {
      try {
        const entries = archive.files.length > 0 ? archiveOf(archive.files[0]) : filesOf(folder.files);
        form.elements.snapshot.value = await upload(entries, all, say);
      } catch (error) {
        // The head may have dropped chunks that no job has named for a long time.
        if (error.status !== 409 || tries === 1) throw error;
      }
    }
    form.elements.folder.value = nameOfChosen();
    isUploading = false;
    form.submit();
  } catch (error) {
    say("");
    show(error);
  } finally {
    isUploading = false;
    for (const button of buttons) button.disabled = false;
  }
});

// --- When the job would start

let asked = 0;
async function estimate() {
  const number = ++asked;
  const fields = new URLSearchParams([...new FormData(form)].filter(([, value]) => typeof value === "string"));
  fields.set("try", "yes");
  // The answer is made into an inert document, so no text becomes HTML here.
  const request = new XMLHttpRequest();
  request.open("POST", "/submit");
  request.responseType = "document";
  request.addEventListener("load", () => {
    if (number !== asked || !request.response) return;
    for (const id of ["estimate", "problem"]) {
      const fresh = document.importNode(request.response.getElementById(id) ?? document.getElementById(id), true);
      document.getElementById(id).replaceChildren(...fresh.childNodes);
      document.getElementById(id).hidden = fresh.hidden;
    }
  });
  request.send(fields);
}
form.addEventListener("change", (event) => { if (event.target.closest("fieldset")?.contains(document.getElementById("estimate"))) estimate(); });
