//! The output of a task: its last lines first, in bounded parts; live; with search; and as plain text.

use askama::Template;
use askama::filters::HtmlSafe;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, Method, Response as HttpResponse, header};
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{JobId, format_bytes, shortened};
use hostler_proto::api::JobDetail;
use hostler_proto::link::Output;
use http_body_util::BodyExt;

use crate::ansi::Painter;
use crate::api::{Api, Refused, read_error};
use crate::page::{Frame, render};
use crate::url::Url;

/// Maximum bytes of one read from the API.
const READ_BYTES: u64 = 256 << 10;

/// Bytes to read for the last line.
const LINE_BYTES: u64 = 4 << 10;

/// Maximum number of lines on a page.
const MAX_LINES: usize = 2_000;

/// Maximum bytes that one search reads.
const SEARCH_BYTES: u64 = 16 << 20;

/// Maximum number of hits of one search.
const MAX_HITS: usize = 200;

/// Id of the element after the last line. Links to an output lead there.
pub(crate) const END: &str = "end";

/// Id of the line that a hit leads to, and of the list of hits.
const MARKED: &str = "line";
const HITS: &str = "hits";

/// Characters of a hit's line before and after the wanted text.
const AROUND: usize = 150;

/// Content-Security-Policy of plain output: the browser may show it and nothing else.
const SANDBOX: &str = "default-src 'none'; sandbox; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// A part of an output.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Offset of the first byte.
    offset: u64,
    /// Size of the whole output.
    pub(crate) size: u64,
    bytes: Vec<u8>,
}

/// Which output: job, index of the task, and name.
pub(crate) type Which = (JobId, u32, Output);

/// A line as HTML, with the offset of its first byte.
pub(crate) struct Shown {
    offset: u64,
    pub(crate) html: Markup,
}

/// HTML from [`Painter`], which escapes all text.
pub(crate) struct Markup(String);

impl std::fmt::Display for Markup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

/// Lines of a part, and what surrounds them.
pub(crate) struct Lines {
    pub(crate) lines: Vec<Shown>,
    /// Offset of the first line.
    start: u64,
    /// Offset after the last line.
    end: u64,
    /// Offset of the last line, if it has no newline yet.
    pub(crate) open: Option<u64>,
}

impl Lines {
    /// Address of the lines after these, for the script. The output is that of the first node.
    pub(crate) fn following(&self, which: Which) -> Url {
        more_of(which, 0, self.open.unwrap_or(self.end))
    }
}

/// Path of an output in the API and in the dashboard.
fn address((id, index, output): Which) -> Url {
    Url::job(id).then("tasks").then(index).then("output").then(output.as_str())
}

/// Reads a part of an output. `place` is a parameter such as `tail` with its value.
pub(crate) async fn part(api: &Api, which: Which, rank: u32, place: (&str, u64), limit: u64) -> Result<Part, Refused> {
    let url = address(which).with(place.0, place.1).with("limit", limit).with("node_rank", rank);
    let response = api.send(Method::GET, &url, Body::empty()).await;
    if !response.status().is_success() {
        return Err(read_error(response).await);
    }
    let (offset, size) = (number(response.headers(), "hostler-offset"), number(response.headers(), "hostler-size"));
    let bytes = response.into_body().collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    Ok(Part { offset, size: size.max(offset + bytes.len() as u64), bytes })
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The last lines of an output, at most `most`.
pub(crate) async fn last_lines(api: &Api, which: Which, bytes: u64, most: usize) -> Result<Lines, Refused> {
    let part = part(api, which, 0, ("tail", bytes), bytes).await?;
    Ok(lines(&part, most, Side::End))
}

/// The last line of an output that is not empty, without styles.
pub(crate) async fn last_text(api: &Api, which: Which) -> Result<Option<String>, Refused> {
    let part = part(api, which, 0, ("tail", LINE_BYTES), LINE_BYTES).await?;
    let texts = part.bytes.split(|byte| *byte == b'\n').map(|line| Painter::default().line(line).text);
    Ok(texts.map(|text| text.trim().to_owned()).rfind(|text| !text.is_empty()))
}

/// Which lines to keep if there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Start,
    End,
}

/// Splits a part into lines, at most `most`. Leaves out the rest of a line that begins before the part.
fn lines(part: &Part, most: usize, keep: Side) -> Lines {
    let mut at = 0;
    let is_cut = part.offset > 0 && keep == Side::End;
    if is_cut && let Some(end) = part.bytes.iter().position(|byte| *byte == b'\n') {
        at = end + 1;
    }
    let mut found: Vec<(usize, usize)> = Vec::new();
    let first = at;
    while at < part.bytes.len() {
        let end = part.bytes[at..].iter().position(|byte| *byte == b'\n').map_or(part.bytes.len(), |end| at + end);
        found.push((at, end));
        at = end + 1;
    }
    let skip = if keep == Side::End { found.len().saturating_sub(most) } else { 0 };
    let chosen = &found[skip..found.len().min(skip + most)];
    let offset = |at: usize| part.offset + at as u64;
    let mut painter = Painter::default();
    for (start, end) in &found[..skip] {
        // Styles continue from the lines that are not shown.
        painter.line(&part.bytes[*start..*end]);
    }
    let shown = chosen
        .iter()
        .map(|&(start, end)| Shown { offset: offset(start), html: Markup(painter.line(&part.bytes[start..end]).html) });
    let last = chosen.last().copied();
    let open = last.filter(|(_, end)| *end == part.bytes.len()).map(|(start, _)| offset(start));
    Lines {
        lines: shown.collect(),
        start: chosen.first().map_or(offset(first), |(start, _)| offset(*start)),
        end: last.map_or(offset(part.bytes.len()), |(_, end)| offset((end + 1).min(part.bytes.len()))),
        open,
    }
}

#[derive(Template)]
#[template(path = "output.html")]
struct Page {
    frame: Frame,
    job: JobDetail,
    index: u32,
    output: Output,
    rank: u32,
    size: String,
    is_empty: bool,
    lines: Lines,
    is_live: bool,
    is_at_end: bool,
    earlier: Option<Url>,
    later: Option<Url>,
    /// Addresses of all outputs of the task, with the current one marked.
    tabs: Vec<(&'static str, Url, bool)>,
    /// Where the form of the search leads.
    search_at: Url,
    start: Url,
    tail: Url,
    raw: Url,
    more: Url,
    search: String,
    hits: Option<Hits>,
    marked: Option<u64>,
}

/// A line with the wanted text: what is before it, the text itself, and what follows.
struct Hit {
    url: Url,
    before: String,
    text: String,
    after: String,
}

/// Result of a search.
struct Hits {
    found: Vec<Hit>,
    next: Option<Url>,
    examined: String,
}

/// Address of a page of the same output.
fn page_of(which: Which, rank: u32) -> Url {
    let url = address(which);
    if rank > 0 { url.with("rank", rank) } else { url }
}

/// `GET /jobs/{id}/tasks/{index}/output/{output}`.
pub(crate) async fn show(frame: Frame, Path(which): Path<Which>) -> Result<Html<String>, Refused> {
    let (id, index, output) = which;
    let job: JobDetail = frame.api.get(&Url::job(id).with("index", index)).await?;
    let rank = frame.query.read::<u32>("rank")?.unwrap_or(0);
    let before: Option<u64> = frame.query.read("before")?;
    let from: Option<u64> = frame.query.read("from")?;
    let (part, keep) = match (before, from) {
        (Some(before), _) => {
            let from = before.saturating_sub(READ_BYTES);
            (part(&frame.api, which, rank, ("from", from), (before - from).max(1)).await?, Side::End)
        }
        (None, Some(from)) => (part(&frame.api, which, rank, ("from", from), READ_BYTES).await?, Side::Start),
        (None, None) => (part(&frame.api, which, rank, ("tail", READ_BYTES), READ_BYTES).await?, Side::End),
    };
    let lines = lines(&part, MAX_LINES, keep);
    let is_at_end = lines.end >= part.size;
    let here = || page_of(which, rank);
    let earlier = (lines.start > 0).then(|| here().with("before", lines.start));
    let later = (!is_at_end).then(|| here().with("from", lines.end));
    let search = frame.query.get("q").unwrap_or_default().to_owned();
    let hits = match search.is_empty() {
        true => None,
        false => {
            let start = frame.query.read("search_from")?.unwrap_or(0);
            Some(find(&frame.api, which, rank, &search, start).await?)
        }
    };
    let tabs = [Output::Stdout, Output::Stderr, Output::Setup];
    let tabs = tabs.map(|tab| (tab.as_str(), page_of((id, index, tab), rank).at(END), tab == output)).into();
    let is_live = job.tasks_shown.iter().any(|task| task.index == index && !task.state.is_ended());
    Ok(render(&Page {
        size: format_bytes(part.size),
        is_empty: part.size == 0,
        is_at_end,
        is_live,
        earlier,
        later,
        tabs,
        search_at: address(which).at(HITS),
        start: here().with("from", 0),
        tail: here().at(END),
        raw: address(which).then("raw").with("rank", rank),
        more: more_of(which, rank, lines.open.unwrap_or(lines.end)),
        search,
        hits,
        marked: from.filter(|from| *from > 0),
        job,
        index,
        output,
        rank,
        lines,
        frame,
    }))
}

fn more_of(which: Which, rank: u32, from: u64) -> Url {
    address(which).then("more").with("rank", rank).with("from", from)
}

#[derive(Template)]
#[template(path = "output-more.html")]
struct More {
    lines: Lines,
    more: Url,
    is_over: bool,
}

/// `GET /jobs/{id}/tasks/{index}/output/{output}/more`: the lines after `from`, for the script.
pub(crate) async fn more(frame: Frame, Path(which): Path<Which>) -> Result<Html<String>, Refused> {
    let (id, index, _) = which;
    let rank = frame.query.read::<u32>("rank")?.unwrap_or(0);
    let from = frame.query.read::<u64>("from")?.unwrap_or(0);
    // The state first: everything that the task wrote before its end is then read.
    let job: JobDetail = frame.api.get(&Url::job(id).with("index", index)).await?;
    let has_ended = job.tasks_shown.iter().all(|task| task.state.is_ended());
    let part = part(&frame.api, which, rank, ("from", from), READ_BYTES).await?;
    let lines = lines(&part, MAX_LINES, Side::Start);
    let is_over = has_ended && lines.end >= part.size;
    let more = more_of(which, rank, lines.open.unwrap_or(lines.end));
    Ok(render(&More { lines, more, is_over }))
}

/// `GET /jobs/{id}/tasks/{index}/output/{output}/raw`: the output as plain text.
pub(crate) async fn raw(frame: Frame, Path(which): Path<Which>) -> Result<Response, Refused> {
    let (id, index, output) = which;
    let rank = frame.query.read::<u32>("rank")?.unwrap_or(0);
    let url = address(which).with("node_rank", rank);
    let response = frame.api.send(Method::GET, &url, Body::empty()).await;
    if !response.status().is_success() {
        return Err(read_error(response).await);
    }
    let kind = if frame.query.get("download").is_some() { "attachment" } else { "inline" };
    let name = format!("{kind}; filename=\"job-{id}-{index}-{}.txt\"", output.as_str());
    let disposition = HeaderValue::from_str(&name).expect("the file name is ASCII");
    let body = HttpResponse::new(response.into_body());
    let mut answer = body.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    Ok(answer)
}

/// Searches an output for a text from `start` on. Upper and lower case are the same.
async fn find(api: &Api, which: Which, rank: u32, text: &str, start: u64) -> Result<Hits, Refused> {
    let wanted = text.to_lowercase();
    let (mut found, mut at) = (Vec::new(), start);
    let mut size;
    let here = || page_of(which, rank);
    loop {
        let part = part(api, which, rank, ("from", at), READ_BYTES).await?;
        size = part.size;
        let is_last = at + part.bytes.len() as u64 >= size || part.bytes.is_empty();
        // The last line of a part continues in the next one, unless it is longer than a part.
        let end = part.bytes.iter().rposition(|byte| *byte == b'\n').map_or(part.bytes.len(), |end| end + 1);
        let end = if is_last { part.bytes.len() } else { end };
        let mut painter = Painter::default();
        let mut offset = at;
        for line in part.bytes[..end].split_inclusive(|byte| *byte == b'\n') {
            let plain = painter.line(line.strip_suffix(b"\n").unwrap_or(line)).text;
            if plain.to_lowercase().contains(&wanted) {
                let url = here().with("from", offset).with("q", text).at(MARKED);
                let (before, text, after) = around(&plain, &wanted);
                found.push(Hit { url, before, text, after });
            }
            offset += line.len() as u64;
            if found.len() >= MAX_HITS {
                break;
            }
        }
        at = offset;
        if is_last || found.len() >= MAX_HITS || at - start >= SEARCH_BYTES {
            break;
        }
    }
    let next = (at < size).then(|| here().with("q", text).with("search_from", at));
    Ok(Hits { found, next, examined: format!("{} of {}", format_bytes(at), format_bytes(size)) })
}

/// Cuts a line around the first occurrence of a text in lower case.
fn around(line: &str, wanted: &str) -> (String, String, String) {
    // The offset in the line of each byte of the line in lower case, which may be longer or shorter.
    let (mut lower, mut offsets) = (String::new(), Vec::new());
    for (at, char) in line.char_indices() {
        lower.extend(char.to_lowercase());
        offsets.resize(lower.len(), at);
    }
    let start = lower.find(wanted).unwrap_or(0);
    let at = |place: usize| offsets.get(place).copied().unwrap_or(line.len());
    let (from, to) = (at(start), at(start + wanted.len()));
    let before = &line[..from];
    let cut = before.char_indices().rev().nth(AROUND).map_or(0, |(at, _)| at);
    let before = if cut > 0 { format!("…{}", &before[cut..]) } else { before.to_owned() };
    (before, line[from..to].to_owned(), shortened(&line[to..], AROUND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, text: &str) -> Part {
        Part { offset, size: offset + text.len() as u64, bytes: text.into() }
    }

    fn shown(lines: &Lines) -> Vec<(u64, &str)> {
        lines.lines.iter().map(|line| (line.offset, line.html.0.as_str())).collect()
    }

    #[test]
    fn last_lines_begin_at_a_line() {
        let found = lines(&part(10, "st\nab\n\ncd\n"), 2, Side::End);
        assert_eq!(shown(&found), [(16, ""), (17, "cd")]);
        assert_eq!((found.start, found.end, found.open), (16, 20, None));
        let found = lines(&part(0, "ab\ncd"), 9, Side::End);
        assert_eq!(shown(&found), [(0, "ab"), (3, "cd")]);
        assert_eq!((found.start, found.end, found.open), (0, 5, Some(3)));
    }

    #[test]
    fn following_parts_have_no_gap() {
        let text = "one\ntwo\nthree\nfour";
        let first = lines(&part(0, text), 2, Side::Start);
        assert_eq!((shown(&first), first.end), (vec![(0, "one"), (4, "two")], 8));
        let rest = lines(&part(8, &text[8..]), 2, Side::Start);
        assert_eq!((shown(&rest), rest.open), (vec![(8, "three"), (14, "four")], Some(14)));
    }

    #[test]
    fn hits_are_cut_around_the_text() {
        let of = |line: &str, wanted: &str| around(line, wanted);
        let parts = |before: &str, text: &str, after: &str| (before.to_owned(), text.to_owned(), after.to_owned());
        assert_eq!(of("an ERROR here", "error"), parts("an ", "ERROR", " here"));
        assert_eq!(of("İstanbul ERROR", "error"), parts("İstanbul ", "ERROR", ""));
        let (before, text, after) = of(&format!("{}X{}", "ä".repeat(400), "ö".repeat(400)), "x");
        assert_eq!((before.chars().count(), text.as_str(), after.chars().count()), (AROUND + 2, "X", AROUND));
    }

    #[test]
    fn empty_output_and_endless_line_are_shown() {
        let empty = lines(&part(0, ""), 5, Side::End);
        assert_eq!((empty.lines.len(), empty.start, empty.end, empty.open), (0, 0, 0, None));
        let endless = lines(&part(7, "xxxx"), 5, Side::End);
        assert_eq!((shown(&endless), endless.start), (vec![(7, "xxxx")], 7));
    }
}
