//! `dsh`, Slurm's commands and others as a separate program, without the daemons. Builds and scripts start them often, and a small
//! program starts faster.

fn main() -> std::process::ExitCode {
    hostler_cli::tools::light_main()
}
