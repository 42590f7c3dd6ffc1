//! `dsh` by itself: a build starts it for every file, and to start what is small takes less time.

fn main() -> std::process::ExitCode {
    hostler_cli::dsh()
}
