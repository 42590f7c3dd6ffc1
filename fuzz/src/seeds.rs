//! Writes the seeds of every target: `seeds DIRECTORY` creates `DIRECTORY/TARGET/seed-N` and prints the target names.

#![expect(clippy::print_stdout, reason = "`cargo xtask fuzz` reads the output")]

use std::path::PathBuf;

use hostler_fuzz::TARGETS;

fn main() -> std::io::Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or_else(|| std::io::Error::other("usage: seeds DIRECTORY"))?;
    for target in TARGETS {
        let directory = directory.join(target.name);
        std::fs::create_dir_all(&directory)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{number}")), seed)?;
        }
        println!("{}\t{}", target.name, target.about);
    }
    Ok(())
}
