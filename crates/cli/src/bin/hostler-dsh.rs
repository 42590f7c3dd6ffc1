//! `dsh` as a program of its own. A build starts it for every file, and a small program starts faster.

fn main() -> std::process::ExitCode {
    hostler_cli::dsh()
}
