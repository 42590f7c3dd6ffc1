//! Finds the line of a failed command's output that states the cause, for the message of a job.
//!
//! uv and build back ends print the cause between a traceback, a summary and general advice. The whole output is in the setup log.

use hostler_model::shortened;

/// How much of the end of a command's output is kept, in bytes.
const TAIL_BYTES: usize = 64 << 10;

/// Maximum number of lines of the command output in an error.
const TAIL_LINES: usize = 100;

/// Maximum length of a cause in characters.
const MOST_CHARS: usize = 400;

/// The end of a command's output.
#[derive(Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        // Trimmed in large steps, so that long output is cheap.
        if self.0.len() > 4 * TAIL_BYTES {
            self.0.drain(..self.0.len() - TAIL_BYTES);
        }
    }

    pub(super) fn lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// The cause of a failure on one line; empty if the command printed nothing.
///
/// The first of these that the output has: the last exception of Python, the first fatal error of a compiler, the end of
/// the output that uv quotes or the last error in it, the error of uv with its causes, the last error of pip, the last line.
pub(super) fn of(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(undecorated).filter(|line| !line.is_empty()).collect();
    let found = exception(&lines)
        .or_else(|| lines.iter().find(|line| line.contains("fatal error: ")).map(|line| (*line).to_owned()))
        .or_else(|| quoted(&lines))
        .or_else(|| chain(&lines))
        .or_else(|| lines.iter().rev().find_map(|line| line.strip_prefix("ERROR: ")).map(str::to_owned))
        .or_else(|| lines.iter().rev().find(|line| !is_advice(line)).map(|line| (*line).to_owned()))
        .unwrap_or_default();
    shortened(&found, MOST_CHARS)
}

/// A line without indentation and the frames that uv draws.
fn undecorated(line: &str) -> &str {
    line.trim().trim_start_matches(['│', '×', '├', '╰', '─', '▶']).trim_start_matches('>').trim()
}

/// The last line such as `ValueError: text` or `package.SomeError: text`.
fn exception(lines: &[&str]) -> Option<String> {
    let is_exception = |line: &&&str| {
        let name = line.split_once(": ").map_or("", |(name, _)| name);
        let is_name = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_' || it == '.');
        is_name && (name.ends_with("Error") || name.ends_with("Exception")) && name.len() > "Error".len()
    };
    lines.iter().rev().find(is_exception).map(|line| (*line).to_owned())
}

/// The last error in the output of a subprocess that uv quotes, or the last line of this output.
fn quoted(lines: &[&str]) -> Option<String> {
    let start = lines.iter().rposition(|line| *line == "[stderr]")? + 1;
    let length = lines[start..].iter().position(|line| is_advice(line)).unwrap_or(lines.len() - start);
    let output = &lines[start..start + length];
    // Backends print advice after the error.
    let error = output.iter().rev().find(|line| line.starts_with("error: "));
    error.or(output.last()).map(|line| (*line).to_owned())
}

/// The last error of uv with its causes: `error: …` or `× …` and lines that begin with `cause: ` or a frame.
fn chain(lines: &[&str]) -> Option<String> {
    let start = lines.iter().rposition(|line| line.starts_with("error: "))?;
    let causes = lines[start + 1..].iter().map_while(|line| line.strip_prefix("cause: "));
    let all: Vec<&str> = lines[start].strip_prefix("error: ").into_iter().chain(causes).collect();
    Some(all.join(": "))
}

fn is_advice(line: &str) -> bool {
    ["hint: ", "note: ", "[notice]", "WARNING: "].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::{MOST_CHARS, of};

    #[test]
    fn cause_of_a_failed_build_is_one_line() {
        let uv_build = "error: Failed to build `bad @ file:///tmp/bad`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)

         [stderr]
         Traceback (most recent call last):
         ModuleNotFoundError: No module named 'numpy'

hint: Build failures usually indicate a problem with the package or the build environment
";
        assert_eq!(of(uv_build), "ModuleNotFoundError: No module named 'numpy'");
        let plain =
            uv_build.replace("Traceback (most recent call last):\n", "").replace("ModuleNotFoundError: No", "no");
        assert_eq!(of(&plain), "no module named 'numpy'");
        let compiler = "[stderr]
      gcc -c ext.c -o ext.o
      ext.c:1:10: fatal error: Python.h: No such file or directory
      compilation terminated.
      error: command '/usr/bin/gcc' failed with exit code 1
";
        assert_eq!(of(compiler), "ext.c:1:10: fatal error: Python.h: No such file or directory");
        let linker = compiler.replace("fatal error: Python.h: No such file or directory", "warning: unused");
        assert_eq!(of(&linker), "error: command '/usr/bin/gcc' failed with exit code 1");
    }

    #[test]
    fn advice_after_the_error_of_a_backend_is_not_the_cause() {
        for error in [
            "error: Multiple top-level packages discovered in a flat-layout: ['jobs', 'mypkg'].",
            "error: Multiple top-level modules discovered in a flat-layout: ['main', 'other'].",
            "error: can't copy 'data': doesn't exist",
        ] {
            let output = format!(
                "running egg_info\n{error}\nTo avoid accidental inclusion, do this.\n\nTo find more, look at the docs.\n"
            );
            let uv =
                format!("error: Failed to build `p`\n  cause: it failed\n\n[stderr]\n{output}\nhint: other text\n");
            assert_eq!(of(&uv), error);
        }
    }

    #[test]
    fn cause_of_unsolvable_requirements_is_one_line() {
        let pip = "Looking in links: /opt/wheels
ERROR: Could not find a version that satisfies the requirement nothing (from versions: none)
ERROR: No matching distribution found for nothing
[notice] A new release of pip is available: 23.2.1 -> 25.0
";
        assert_eq!(of(pip), "No matching distribution found for nothing");
        let uv = "Using Python 3.11.7 environment at: v1
error: No solution found when resolving dependencies
  cause: Because nothing was not found in the package registry, your requirements are unsatisfiable.

hint: something
";
        let expected = "Because nothing was not found in the package registry, your requirements are unsatisfiable.";
        assert_eq!(of(uv), format!("No solution found when resolving dependencies: {expected}"));
        let framed = "  × No solution found when resolving dependencies:
  ╰─▶ Because nothing was not found in the package registry, your requirements are unsatisfiable.
";
        assert_eq!(of(framed), expected);
        let refused = "error: Failed to fetch: https://127.0.0.1:9/\n  cause: tcp connect error\n  cause: refused\n";
        assert_eq!(of(refused), "Failed to fetch: https://127.0.0.1:9/: tcp connect error: refused");
    }

    #[test]
    fn cause_is_the_last_line_of_other_output_and_bounded() {
        assert_eq!(of(""), "");
        assert_eq!(of("one\ntwo\n\nnote: three\n"), "two");
        assert_eq!(of(&"é".repeat(5000)).chars().count(), MOST_CHARS);
    }
}
