//! Included files.

use std::sync::Arc;

use super::lines::{Line, Place, Problem, Value, parse};

/// The most bytes of all files together. Real ones are smaller by far; files that include each other could stand for any
/// amount.
pub const MAX_BYTES: usize = 4 << 20;

/// The most files within each other. Slurm's own configurations have two or three levels.
const MAX_DEPTH: usize = 16;

/// A file that the caller has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The file's identity, such as its absolute path without links.
    pub id: String,
    /// Name of the file for messages.
    pub name: Arc<str>,
    /// Its text.
    pub text: String,
}

/// Why the caller cannot read a file, as a sentence fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound(pub String);

/// Parses a file and the files that it includes, in the order of their lines. `open` reads an included file by its name; `%c` in
/// the name is the name of the cluster by then.
///
/// # Errors
/// Returns all wrong lines.
pub fn read(
    first: &Found,
    open: &mut dyn FnMut(&str) -> Result<Found, NotFound>,
) -> Result<Vec<Vec<Value>>, Vec<Problem>> {
    let mut reader = Reader { open, lines: Vec::new(), problems: Vec::new(), bytes: 0, stack: Vec::new() };
    reader.add(first, &Place { file: Arc::clone(&first.name), line: 1 });
    if reader.problems.is_empty() { Ok(reader.lines) } else { Err(reader.problems) }
}

struct Reader<'a> {
    open: &'a mut dyn FnMut(&str) -> Result<Found, NotFound>,
    lines: Vec<Vec<Value>>,
    problems: Vec<Problem>,
    bytes: usize,
    /// The ids of the files around the current one, and its own.
    stack: Vec<String>,
}

impl Reader<'_> {
    /// Adds the lines of a file that is included at a place.
    fn add(&mut self, file: &Found, at: &Place) {
        self.bytes = self.bytes.saturating_add(file.text.len());
        if self.bytes > MAX_BYTES {
            return self.report(at, format!("the files have more than {} MiB together", MAX_BYTES >> 20));
        }
        if file.text.contains('\0') {
            return self.report(&Place { file: Arc::clone(&file.name), line: 1 }, "this is not a text file");
        }
        self.stack.push(file.id.clone());
        let (lines, problems) = parse(&file.name, &file.text);
        self.problems.extend(problems);
        for line in lines {
            match line {
                Line::Values(values) => self.lines.push(values),
                Line::Include(place, name) => self.include(&place, &name),
            }
        }
        self.stack.pop();
    }

    fn include(&mut self, at: &Place, name: &str) {
        if self.bytes > MAX_BYTES {
            return;
        }
        let name = name.replace("%c", self.cluster().unwrap_or("%c"));
        match (self.open)(&name) {
            Err(NotFound(why)) => self.report(at, why),
            Ok(file) if self.stack.contains(&file.id) => {
                self.report(at, format!("{} includes itself, directly or through other files", file.name));
            }
            Ok(_) if self.stack.len() >= MAX_DEPTH => {
                self.report(at, format!("more than {MAX_DEPTH} files include each other"));
            }
            Ok(file) => self.add(&file, at),
        }
    }

    /// The name of the cluster as far as it is known.
    fn cluster(&self) -> Option<&str> {
        let value = self.lines.iter().flatten().rfind(|value| value.is("ClusterName"));
        value.map(|value| value.text.as_str())
    }

    fn report(&mut self, place: &Place, text: impl Into<String>) {
        self.problems.push(Problem::new(place, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> Found {
        Found { id: name.to_owned(), name: name.into(), text: text.to_owned() }
    }

    /// The pairs or problems of the first file.
    fn all(files: &[(&str, &str)]) -> Result<String, String> {
        let mut open = |name: &str| {
            let found = files.iter().find(|(known, _)| *known == name);
            found.map(|(name, text)| file(name, text)).ok_or_else(|| NotFound(format!("cannot read {name}")))
        };
        let lines = read(&file(files[0].0, files[0].1), &mut open);
        let text = |value: &Value| format!("{} {value}", value.place);
        let lines = lines.map(|lines| lines.iter().flatten().map(text).collect::<Vec<_>>().join("\n"));
        lines.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn included_lines_are_in_their_place() {
        let files =
            [("s", "A=1\ninclude b\nClusterName=lab\nInclude %c.d\nA=4"), ("b", "\nA=2"), ("lab.d", "A=3\ninclude b")];
        assert_eq!(all(&files), Ok("s:1 A=1\nb:2 A=2\ns:3 ClusterName=lab\nlab.d:1 A=3\nb:2 A=2\ns:5 A=4".to_owned()));
    }

    #[test]
    fn loops_missing_and_endless_files_are_reported() {
        let loops = [("s", "include b"), ("b", "A=1\ninclude c"), ("c", "include b")];
        assert_eq!(all(&loops), Err("c:1: b includes itself, directly or through other files".to_owned()));
        assert_eq!(
            all(&[("s", "A=1\ninclude x\n!")]),
            Err("s:3: `!` is not of the form Key=value\ns:2: cannot read x".to_owned())
        );
        assert_eq!(all(&[("s", "A=1\0")]), Err("s:1: this is not a text file".to_owned()));
        // Each file includes the next one twice.
        let names: Vec<String> = (0..40).map(|at| format!("f{at}")).collect();
        let texts: Vec<String> = names
            .iter()
            .skip(1)
            .map(|name| format!("include {name}\ninclude {name}\n{}", "#".repeat(200_000)))
            .collect();
        let files: Vec<(&str, &str)> =
            names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let error = all(&files).expect_err("endless");
        assert!(error.contains("more than 16 files include each other"), "{error}");
        assert!(error.contains("the files have more than 4 MiB together"), "{error}");
    }
}
