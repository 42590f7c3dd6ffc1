//! The `hostler` executable; the code is in the library.

fn main() -> std::process::ExitCode {
    hostler_cli::main()
}
