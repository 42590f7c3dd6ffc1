//! Which tool the executable was called as.
//!
//! The name it was called by chooses a row of [`TOOLS`]; any other name is `hostler` itself, so a renamed copy still works.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// A tool by the name of its link.
struct Tool {
    name: &'static str,
    main: fn(Vec<OsString>) -> ExitCode,
}

/// Every name that means something.
const TOOLS: &[Tool] = &[Tool { name: "hostler", main: crate::args::main }];

/// Acts as the tool that `args[0]` names.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    (tool_for(args.first()).main)(args)
}

fn tool_for(called_as: Option<&OsString>) -> &'static Tool {
    let name = called_as.and_then(|path| Path::new(path).file_name()).and_then(OsStr::to_str);
    TOOLS.iter().find(|tool| Some(tool.name) == name).unwrap_or(&TOOLS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_other_name_is_hostler() {
        for path in ["hostler", "/usr/bin/hostler", "./target/debug/hostler-1.0", ""] {
            assert_eq!(tool_for(Some(&path.into())).name, "hostler", "{path}");
        }
        assert_eq!(tool_for(None).name, "hostler");
    }
}
