//! `dsh` as a separate program. A build starts `dsh` for every file, and a small program starts faster.

fn main() -> std::process::ExitCode {
    hostler_cli::dsh()
}
