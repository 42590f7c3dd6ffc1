//! The one executable: see the library.

fn main() -> std::process::ExitCode {
    hostler_cli::main()
}
