//! Finds the line of a failed command's output that states the cause, for the message of a job.
//!
//! pip and uv print the cause between a traceback, a summary and general advice. The whole output is in the setup log.

/// Maximum length of a cause in characters.
const MOST_CHARS: usize = 400;

/// The cause of a failure on one line; empty if the command printed nothing.
///
/// The first of these that the output has: the last exception of Python, the first fatal error of a compiler, the end of
/// the output that pip quotes or the last error in it, the error of uv with its causes, the last error of pip, the last line.
pub(super) fn of(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(undecorated).filter(|line| !line.is_empty()).collect();
    let found = exception(&lines)
        .or_else(|| lines.iter().find(|line| line.contains("fatal error: ")).map(|line| (*line).to_owned()))
        .or_else(|| quoted(&lines))
        .or_else(|| chain(&lines))
        .or_else(|| lines.iter().rev().find_map(|line| line.strip_prefix("ERROR: ")).map(str::to_owned))
        .or_else(|| lines.iter().rev().find(|line| !is_advice(line)).map(|line| (*line).to_owned()))
        .unwrap_or_default();
    shortened(&found)
}

/// A line without indentation and the frames that pip and uv draw.
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

/// The last error in the output of a subprocess that pip or uv quotes, or the last line of this output.
fn quoted(lines: &[&str]) -> Option<String> {
    let end = lines.iter().rposition(|line| *line == "[end of output]").or_else(|| {
        let start = lines.iter().rposition(|line| *line == "[stderr]")?;
        Some(start + lines[start..].iter().position(|line| is_advice(line)).unwrap_or(lines.len() - start))
    })?;
    let is_start = |line: &&str| *line == "[stderr]" || line.ends_with("lines of output]");
    let start = lines[..end].iter().rposition(is_start).map_or(0, |before| before + 1);
    let output = &lines[start..end];
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

fn shortened(text: &str) -> String {
    if text.chars().count() <= MOST_CHARS {
        return text.to_owned();
    }
    text.chars().take(MOST_CHARS).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn cause_of_a_failed_build_is_one_line() {
        let pip_build = "Processing ./bad
  Getting requirements to build wheel: finished with status 'error'
  error: subprocess-exited-with-error

  × Getting requirements to build wheel did not run successfully.
  │ exit code: 1
  ╰─> [51 lines of output]
      Traceback (most recent call last):
        File \"<string>\", line 1, in <module>
          raise LookupError(error_msg)
      LookupError: setuptools-scm was unable to detect version for /tmp/bad.

      For example, if you're using pip, use git+https://github.com/user/proj.git#egg=proj
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
error: subprocess-exited-with-error
╰─> See above for output.
";
        assert_eq!(of(pip_build), "LookupError: setuptools-scm was unable to detect version for /tmp/bad.");
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
        let compiler = "  ╰─> [9 lines of output]
      gcc -c ext.c -o ext.o
      ext.c:1:10: fatal error: Python.h: No such file or directory
      compilation terminated.
      error: command '/usr/bin/gcc' failed with exit code 1
      [end of output]
  ERROR: Failed building wheel for ext
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
            let pip = format!(
                "error: subprocess-exited-with-error\n╰─> [4 lines of output]\n{output}[end of output]\nnote: it failed\n"
            );
            assert_eq!(of(&pip), error);
        }
        assert_eq!(of("error: one\n╰─> [0 lines of output]\n[end of output]\n"), "one");
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
        assert_eq!(of(&"é".repeat(5000)).chars().count(), 401);
    }
}
