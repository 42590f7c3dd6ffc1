//! `scontrol show hostnames` and `scontrol show hostlist`.

use hostler_slurm::hostlist::{compress, expand};

use super::super::machines::by_name;
use super::super::{Ended, Outcome};
use super::{NAME, Session, USAGE};

impl Session<'_> {
    /// Prints each name of a list on its own line: of the argument, of standard input, or of the job's nodes.
    pub(super) fn show_host_names(&self, list: Option<&str>) -> Outcome {
        let variable = |name: &str| std::env::var(name).ok().filter(|list| !list.is_empty());
        let list = match list {
            Some("-") => Some(read()?),
            Some(list) => Some(list.to_owned()),
            None => variable("SLURM_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST")),
        };
        let Some(list) = list else {
            self.complain(&format!("{NAME}: error: host list is empty"));
            return Ok(0);
        };
        let names = expand(&list).map_err(|why| Ended::error(format!("Invalid hostlist: {list}")).and(why))?;
        self.print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
    }

    /// Prints the short form of a list: of the argument, of a file, or of standard input.
    pub(super) fn show_host_list(&self, list: Option<&str>, is_sorted: bool) -> Outcome {
        let list = match list {
            None => {
                self.print(USAGE)?;
                return Err(Ended::plain("invalid encode argument"));
            }
            Some("-") => read()?,
            Some(path) if path.starts_with('/') => std::fs::read_to_string(path)
                .map_err(|error| Ended::error(format!("Unable to open {path}: {error}")))?,
            Some(list) => list.to_owned(),
        };
        let mut names = expand(&list).map_err(|why| Ended::error(format!("Invalid hostlist: {list}")).and(why))?;
        if is_sorted {
            names.sort_by(|a, b| by_name(a, b));
        }
        self.print(&format!("{}\n", compress(&names)))
    }
}

/// Reads a list from standard input.
fn read() -> Result<String, Ended> {
    std::io::read_to_string(std::io::stdin().lock())
        .map_err(|error| Ended::error(format!("Unable to read the host list from standard input: {error}")))
}
