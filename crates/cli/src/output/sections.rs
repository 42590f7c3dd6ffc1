//! Headings above the output of several tasks.

use std::cell::Cell;

use hostler_proto::link::Output as Stream;

use super::Output;
use crate::failure::Failure;

/// The standard output and standard error of this program, which show one task after another.
pub(crate) struct Sections<'a> {
    output: &'a Output,
    /// Whether each output ends within a line.
    is_mid_line: [Cell<bool>; 2],
}

/// The output of one task. The heading of a stream is written before the first bytes, to the same output, so that a
/// file with the output of all tasks says which task wrote what. A task without output has no heading.
pub(crate) struct Section<'a> {
    sections: &'a Sections<'a>,
    /// The name for headings; `None` for no headings.
    name: Option<String>,
    has_heading: [Cell<bool>; 3],
}

impl<'a> Sections<'a> {
    pub(crate) fn new(output: &'a Output) -> Self {
        Self { output, is_mid_line: Default::default() }
    }

    pub(crate) fn section(&'a self, name: Option<String>) -> Section<'a> {
        Section { sections: self, name, has_heading: Default::default() }
    }
}

impl Section<'_> {
    /// Writes a part of a stream.
    pub(crate) fn write(&self, stream: Stream, bytes: &[u8]) -> Result<(), Failure> {
        let Some(last) = bytes.last() else { return Ok(()) };
        let is_stdout = stream == Stream::Stdout;
        let Sections { output, is_mid_line } = self.sections;
        let is_mid_line = &is_mid_line[usize::from(is_stdout)];
        if let Some(name) = &self.name
            && !self.has_heading[stream as usize].replace(true)
        {
            let line_end = if is_mid_line.get() { "\n" } else { "" };
            output.job_output(is_stdout, format!("{line_end}{}\n", heading(name, stream)).as_bytes())?;
        }
        is_mid_line.set(*last != b'\n');
        output.job_output(is_stdout, bytes)
    }
}

fn heading(name: &str, stream: Stream) -> String {
    match stream {
        Stream::Stdout => format!("==> {name} <=="),
        Stream::Stderr | Stream::Setup => format!("==> {name} {} <==", stream.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_name_the_task_and_the_stream() {
        let all = [Stream::Stdout, Stream::Stderr, Stream::Setup].map(|stream| heading("7_2", stream));
        assert_eq!(all, ["==> 7_2 <==", "==> 7_2 stderr <==", "==> 7_2 setup <=="]);
    }
}
