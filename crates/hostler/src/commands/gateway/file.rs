//! The configuration file of the gateway.

use std::path::{Path, PathBuf};

use clap::Args;
use hostler_cli::failure::Failure;
use hostler_gateway::{Gateway, Mistake, Setup};

/// Default path of the gateway's configuration.
const DEFAULT_FILE: &str = "/etc/hostler/gateway.toml";

/// The option that selects the configuration file.
#[derive(Debug, Args)]
pub(super) struct File {
    /// Configuration file of the gateway
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    file: PathBuf,
}

impl File {
    pub(super) fn read(&self, gateway: &Gateway) -> Result<Setup, Failure> {
        let path = &self.file;
        let text = std::fs::read_to_string(path).map_err(|error| {
            let failure = Failure::new(format!("cannot read {}", path.display())).because(&error);
            failure.hint(format!("`hostler gateway plan --example > {}` writes an example", path.display()))
        })?;
        Setup::parse(&text, Some(&gateway.interfaces())).map_err(|mistakes| wrong(path, &mistakes))
    }
}

/// Lists all mistakes in the file. The exit code is 1, because 2 means that `plan` found changes.
fn wrong(path: &Path, mistakes: &[Mistake]) -> Failure {
    let there_is = match mistakes.len() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    let lines: String = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
    Failure::new(format!("{there_is} in {}:{lines}", path.display()))
}
