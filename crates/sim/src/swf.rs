//! Recorded workloads in the Standard Workload Format.
//!
//! A trace has one job per line: 18 numbers separated by blanks, with -1 for unknown values. Lines that begin with `;`
//! are header and comments. Traces in archives vary in form, so this reader accepts all unambiguous input: any blanks,
//! any line ends, decimals, header text in any encoding, short lines, jobs out of order. It rejects ambiguous input
//! with the number of the line.
//!
//! The reader skips jobs that did not run and lines for a part of a job that has its own line; [`Trace::skipped`]
//! counts them. It ignores users, queues, dependencies and think times.

use hostler_model::Request;

/// The largest valid time or count: thirty thousand years in seconds.
const MAX_NUMBER: f64 = 1e12;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Processors of the recorded machine, if the header has them.
    pub processors: Option<u32>,
    /// The jobs in the order of submission; jobs of the same second keep the order of the file.
    pub jobs: Vec<TraceJob>,
    /// The number of skipped lines: jobs that did not run, and parts of jobs.
    pub skipped: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceJob {
    /// The job's number in the trace.
    pub number: u64,
    /// When the job was submitted, in seconds since the trace began.
    pub submit_secs: u64,
    /// How long the job ran, in seconds.
    pub run_secs: u64,
    /// The requested resources. Memory is zero where the trace has none.
    pub request: Request,
    /// The requested time limit in seconds, if any.
    pub limit_secs: Option<u64>,
}

/// A line with invalid syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct SwfError {
    /// The line number, from 1.
    pub line: usize,
    pub problem: Problem,
}

/// Why a line is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line ends before the number of processors, the fifth field.
    #[error("has {found} fields where a job has 18, of which the first five are needed")]
    TooShort {
        /// The number of fields.
        found: usize,
    },
    /// A field is not a number.
    #[error("{field} is `{text}`, which is not a number")]
    NotANumber {
        /// The meaning of the field.
        field: &'static str,
        /// The text of the field.
        text: String,
    },
    /// A number is out of range.
    #[error("{field} is `{text}`, which is out of range")]
    OutOfRange {
        /// The meaning of the field.
        field: &'static str,
        /// The text of the field.
        text: String,
    },
}

/// The index of a field in a line, from 0, and its meaning.
type Field = (usize, &'static str);

const NUMBER: Field = (0, "the job number");
const SUBMIT: Field = (1, "the submit time");
const RUN: Field = (3, "the run time");
const ALLOCATED: Field = (4, "the number of allocated processors");
const REQUESTED: Field = (7, "the number of requested processors");
const LIMIT: Field = (8, "the requested time");
const MEMORY: Field = (9, "the requested memory");
const STATUS: Field = (10, "the status");

/// The number of leading fields that every job must have.
const NEEDED: usize = 5;

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// Fails at the first invalid line.
    pub fn parse(bytes: &[u8]) -> Result<Self, SwfError> {
        let mut trace = Self::default();
        let mut header = Header::default();
        for (i, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            // Header lines use the encoding of their author; only ASCII matters here.
            let line = String::from_utf8_lossy(line);
            let line = line.trim();
            if let Some(comment) = line.strip_prefix(';') {
                header.read(comment);
            } else if !line.is_empty() {
                match read_job(line).map_err(|problem| SwfError { line: i + 1, problem })? {
                    Some(job) => trace.jobs.push(job),
                    None => trace.skipped += 1,
                }
            }
        }
        trace.processors = header.processors.or(header.nodes);
        trace.jobs.sort_by_key(|job| job.submit_secs);
        Ok(trace)
    }
}

/// The recorded machine, according to the header of the trace.
#[derive(Default)]
struct Header {
    processors: Option<u32>,
    nodes: Option<u32>,
}

impl Header {
    /// Reads a line such as ` MaxProcs: 256`; the first occurrence counts.
    fn read(&mut self, comment: &str) {
        let Some((key, value)) = comment.split_once(':') else { return };
        let number = || {
            let digits: String = value.trim().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok().filter(|number| *number > 0)
        };
        match key.trim() {
            "MaxProcs" => self.processors = self.processors.or_else(number),
            "MaxNodes" => self.nodes = self.nodes.or_else(number),
            _ => {}
        }
    }
}

/// Reads a job; returns `None` if the job did not run.
fn read_job(line: &str) -> Result<Option<TraceJob>, Problem> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if fields.len() < NEEDED {
        return Err(Problem::TooShort { found: fields.len() });
    }
    let known = |field: Field| known(&fields, field);
    let (number, submit) = (known(NUMBER)?, known(SUBMIT)?);
    let (run, status) = (known(RUN)?, known(STATUS)?);
    let positive = |field: Field| Ok(known(field)?.filter(|number| *number > 0));
    let processors = match positive(REQUESTED)? {
        Some(requested) => Some((REQUESTED, requested)),
        None => positive(ALLOCATED)?.map(|allocated| (ALLOCATED, allocated)),
    };
    let (limit_secs, kilobytes) = (positive(LIMIT)?, positive(MEMORY)?.unwrap_or(0));
    let (Some(run_secs), Some((field, processors))) = (run, processors) else { return Ok(None) };
    // Status 2, 3 and 4 mean parts of a job. Status 5 means a cancelled job, possibly cancelled before it ran.
    if matches!(status, Some(2..=4)) || (status == Some(5) && run_secs == 0) {
        return Ok(None);
    }
    let cpus = u32::try_from(processors).map_err(|_| out_of_range(&fields, field))?;
    let memory_bytes = kilobytes.saturating_mul(1024).saturating_mul(processors);
    Ok(Some(TraceJob {
        number: number.ok_or_else(|| out_of_range(&fields, NUMBER))?,
        submit_secs: submit.ok_or_else(|| out_of_range(&fields, SUBMIT))?,
        run_secs,
        request: Request::new(cpus, memory_bytes),
        limit_secs,
    }))
}

/// The value of a field; `None` if it is unknown: negative or beyond the end of the line. Decimals are truncated.
fn known(fields: &[&str], (at, meaning): Field) -> Result<Option<u64>, Problem> {
    let Some(text) = fields.get(at) else { return Ok(None) };
    let not_a_number = || Problem::NotANumber { field: meaning, text: (*text).to_owned() };
    let number: f64 = text.parse().map_err(|_| not_a_number())?;
    match number {
        _ if number.is_nan() => Err(not_a_number()),
        _ if number > MAX_NUMBER => Err(out_of_range(fields, (at, meaning))),
        _ if number < 0.0 => Ok(None),
        _ => Ok(Some(number as u64)),
    }
}

fn out_of_range(fields: &[&str], (at, field): Field) -> Problem {
    Problem::OutOfRange { field, text: fields.get(at).copied().unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Trace {
        Trace::parse(text.as_bytes()).expect("a valid trace")
    }

    fn error(text: &str) -> String {
        Trace::parse(text.as_bytes()).expect_err("an invalid trace").to_string()
    }

    #[test]
    fn job_line_of_the_format_is_parsed() {
        let trace =
            parse("; MaxNodes: 32\n; MaxProcs: 128 (4 a node)\n7 10 5 60 4 -1 100 8 120 200 1 1 1 1 1 -1 -1 -1\n");
        assert_eq!(trace.processors, Some(128));
        let request = Request::new(8, 8 * 200 * 1024);
        let job = TraceJob { number: 7, submit_secs: 10, run_secs: 60, request, limit_secs: Some(120) };
        assert_eq!((trace.jobs, trace.skipped), (vec![job], 0));
    }

    #[test]
    fn unusual_but_unambiguous_input_is_accepted() {
        let odd = b"; Installation: Universit\xe4t\r\n;MaxNodes:16\r\n\r\n2\t20.0  -1 5.9 2 -1\r\n1 10 -1 3 1\n  ; comment\n3 10 -1 4 1";
        let trace = Trace::parse(odd).expect("valid");
        let numbers: Vec<(u64, u64)> = trace.jobs.iter().map(|job| (job.number, job.run_secs)).collect();
        assert_eq!((trace.processors, numbers), (Some(16), vec![(1, 3), (3, 4), (2, 5)]));
        assert_eq!(parse(""), Trace::default());
    }

    #[test]
    fn jobs_that_did_not_run_are_skipped_and_counted() {
        let lines = [
            "1 0 -1 -1 4 -1 -1 4 60 -1 5 1 1 1 1 -1 -1 -1",
            "2 0 -1 10 -1 -1 -1 -1 60 -1 1 1 1 1 1 -1 -1 -1",
            "3 0 -1 10 4 -1 -1 4 60 -1 2 1 1 1 1 -1 -1 -1",
            "4 0 -1 0 4 -1 -1 4 60 -1 5 1 1 1 1 -1 -1 -1",
            "5 0 -1 0 4 -1 -1 4 60 -1 1 1 1 1 1 -1 -1 -1",
            "6 0 -1 9 4 -1 -1 4 60 -1 5 1 1 1 1 -1 -1 -1",
        ];
        let trace = parse(&lines.join("\n"));
        let numbers: Vec<u64> = trace.jobs.iter().map(|job| job.number).collect();
        assert_eq!((numbers, trace.skipped), (vec![5, 6], 4));
    }

    #[test]
    fn invalid_lines_are_refused_with_their_number() {
        let short = "line 3: has 4 fields where a job has 18, of which the first five are needed";
        assert_eq!(error("; x\n1 0 -1 1 1\n1 2 3 4\n"), short);
        assert_eq!(error("1 zero -1 1 1"), "line 1: the submit time is `zero`, which is not a number");
        assert_eq!(error("1 nan -1 1 1"), "line 1: the submit time is `nan`, which is not a number");
        assert_eq!(error("1 -5 -1 1 1"), "line 1: the submit time is `-5`, which is out of range");
        assert_eq!(error("1 0 -1 1e300 1"), "line 1: the run time is `1e300`, which is out of range");
        assert_eq!(error("1 0 -1 inf 1"), "line 1: the run time is `inf`, which is out of range");
        let many = "line 1: the number of allocated processors is `5000000000`, which is out of range";
        assert_eq!(error("1 0 -1 1 5000000000"), many);
    }
}
